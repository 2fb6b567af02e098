"""Clients from a CSV file.

    client,up,down,latency,step_s,from,to
    0,1000000,8000000,0.02,0.05,0,3600
    0,1000000,8000000,0.02,0.05,7200,9000
    1,4000000,20000000,0.01,0.02,,

`up` and `down` are bit/s, `latency` is seconds one way, and `step_s` (or `speed`) is seconds of a local step.  The last
two columns may be missing; they are a window of seconds in which the client can be reached, and more windows are more
lines.  A client with an empty window is always there.  When the last window of the file is over, all begin again.
Spaces around names and numbers do not matter.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.simulation.network.links import Links
from fedcef.simulation.network.population import Population

NUMBERS = ("up", "down", "latency", "step_s")
ALSO = {"speed": "step_s"}  # what a column was called before
WINDOW = ("from", "to")


@dataclass(frozen=True, eq=False)
class Trace(Population):
    """Clients as a file describes them."""

    table: Links
    """All clients', in the order of their numbers."""
    owner: NDArray[np.int64]
    """The client of each window, ascending; those that are always there have none."""
    begins: NDArray[np.float64]
    ends: NDArray[np.float64]

    @classmethod
    def read(cls, path: str, num_clients: int) -> Trace:
        """The clients 0..num_clients-1 from a file; each must be there with the same numbers on all of its lines."""
        rows: dict[int, tuple[float, ...]] = {}
        windows: list[tuple[int, float, float]] = []
        for line, row in _lines(path):
            client = _client(path, line, row, num_clients)
            numbers = tuple(_number(path, line, row, name) for name in NUMBERS)
            if rows.setdefault(client, numbers) != numbers:
                raise ConfigError(f"Line {line} of {path} has other numbers for client {client} than a line before it.")
            begin, end = (_number(path, line, row, name, inf) for name in WINDOW)
            if isfinite(begin) != isfinite(end) or (isfinite(begin) and begin >= end):
                raise ConfigError(f"Line {line} of {path} has no window: `from` must be before `to`, or both empty.")
            if isfinite(begin):
                windows.append((client, begin, end))
        if missing := [client for client in range(num_clients) if client not in rows]:
            raise ConfigError(
                f"{path} has no line for client {missing[0]}; it must have all of 0 to {num_clients - 1}."
            )
        table = torch.tensor([rows[client] for client in range(num_clients)], dtype=torch.float64)
        owner, begins, ends = zip(*sorted(windows), strict=True) if windows else ((), (), ())
        return cls(Links(*table.unbind(-1)), np.array(owner, np.int64), np.array(begins), np.array(ends))

    @property
    def always_there(self) -> bool:
        """Whether the file has no windows."""
        return not len(self.owner)

    @property
    def cycle(self) -> float:
        """Seconds after which the windows begin again."""
        return float(self.ends.max())

    def links(self, clients: Tensor) -> Links:
        """Their lines of the file."""
        chosen = {name: getattr(self.table, name)[clients.cpu()] for name in ("up", "down", "latency", "step")}
        return replace(self.table, **chosen)

    def available(self, clients: Tensor, at: float) -> Tensor:
        """Those with a window that is open, and those without any."""
        if self.always_there:
            return torch.ones(len(clients), dtype=torch.bool)
        numbers, now = clients.cpu().numpy(), at % self.cycle
        open_now = self.owner[(self.begins <= now) & (now < self.ends)]
        there = np.isin(numbers, open_now) | ~np.isin(numbers, self.owner)
        return torch.from_numpy(there)

    def next_change(self, at: float) -> float:
        """The next time that a window opens or closes."""
        cycles, now = divmod(at, self.cycle)
        edges = np.concatenate([self.begins, self.ends, self.begins + self.cycle])
        later = edges[edges > now]
        return float(cycles * self.cycle + later.min())


def _lines(path: str) -> list[tuple[int, Mapping[str, str]]]:
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            names = tuple(ALSO.get(name.strip(), name.strip()) for name in reader.fieldnames or ())
            reader.fieldnames = names
            lines: list[tuple[int, Mapping[str, str]]] = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"network.trace is {path!r}, which cannot be read: {error}.") from None
    wanted = ("client", *NUMBERS)
    if len(set(names)) < len(names) or set(names) not in ({*wanted}, {*wanted, *WINDOW}):
        raise ConfigError(
            f"{path} has the columns {', '.join(names) or '(none)'}; it must have {', '.join(wanted)}, and may have "
            f"{' and '.join(WINDOW)}."
        )
    return lines


def _client(path: str, line: int, row: Mapping[str, str], num_clients: int) -> int:
    text = (row["client"] or "").strip()
    if not (text.isdecimal() and int(text) < num_clients):
        raise ConfigError(
            f"Line {line} of {path} is for client {text!r}; clients are 0 to num_clients - 1 = {num_clients - 1}."
        )
    return int(text)


def _number(path: str, line: int, row: Mapping[str, str], name: str, empty: float | None = None) -> float:
    text = (row.get(name) or "").strip()
    if not text and empty is not None:
        return empty
    least = 0.0 if name in ("latency", "step_s", *WINDOW) else 1e-9
    try:
        number = float(text)
    except ValueError:
        number = -inf
    if not (isfinite(number) and number >= least):
        allowed = "a number, 0 or more" if not least else "a number above 0"
        raise ConfigError(f"Line {line} of {path} has {name} {text!r}; it must be {allowed}.")
    return number
