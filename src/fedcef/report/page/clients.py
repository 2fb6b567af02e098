"""How the clients differ: how many samples of each class every client holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from fedcef.report.data.groups import Method
from fedcef.report.data.records import as_line
from fedcef.report.page.render import render

MOST_CLIENTS = 50  # rows of a table
MOST_DEALS = 6  # tables
WITH_NUMBERS = 14  # classes up to which cells carry their counts
DEEP = 78  # percent of ink beyond which text on it is light


@dataclass(frozen=True)
class Holding:
    """What a client holds of a class."""

    name: str
    held: int
    share: float

    @property
    def ink(self) -> int:
        """Percent; small shares are seen too."""
        return round(100 * float(self.share**0.7))


@dataclass(frozen=True, eq=False)
class Deal:
    """Which client holds what."""

    classes: tuple[str, ...]
    counts: NDArray[np.int64]  # (clients, classes)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Every client's distribution of classes; zeros where it has no samples."""
        shares: NDArray[np.float64] = self.counts / np.maximum(1, self.counts.sum(axis=1, keepdims=True))
        return shares

    @property
    def distances(self) -> NDArray[np.float64]:
        """(clients,) total variation between a client's distribution and that of all: 0 alike, 1 nothing in common."""
        everyone = self.counts.sum(axis=0) / max(1, self.counts.sum())
        distances: NDArray[np.float64] = 0.5 * np.abs(self.shares - everyone).sum(axis=1)
        return distances

    def rows(self, most: int) -> list[list[Holding]]:
        """The first clients, class by class."""
        held, shares = self.counts[:most].tolist(), self.shares[:most].tolist()
        return [
            [Holding(*cell) for cell in zip(self.classes, *of_client, strict=True)]
            for of_client in zip(held, shares, strict=True)
        ]


def deal_of(facts: dict[str, Any]) -> Deal | None:
    """The deal that the facts of a run tell of; None where they are not as `runs/facts.py` writes them."""
    clients = facts.get("clients")
    if not isinstance(clients, dict):
        return None
    classes, counts = clients.get("classes"), clients.get("counts")
    if not isinstance(classes, list) or not isinstance(counts, list) or not classes or not counts:
        return None
    if any(not isinstance(row, list) or len(row) != len(classes) for row in counts):
        return None
    if any(type(n) is not int or not 0 <= n < 2**53 for row in counts for n in row):
        return None
    return Deal(tuple(as_line(str(name)) for name in classes), np.array(counts, dtype=np.int64))


def render_clients(items: Sequence[Method]) -> Markup:
    """One table for each different deal, the first one open."""
    found: dict[bytes, tuple[Deal, list[tuple[Method, int | None]]]] = {}
    for item in items:
        for record in item.records:
            if deal := deal_of(record.facts):
                found.setdefault(deal.counts.tobytes(), (deal, []))[1].append((item, record.seed))
    deals = [(_whose(users, items) if len(found) > 1 else "All runs", deal) for deal, users in found.values()]
    return render(
        "clients.html",
        deals=deals[:MOST_DEALS],
        left=max(0, len(deals) - MOST_DEALS),
        most_clients=MOST_CLIENTS,
        with_numbers=WITH_NUMBERS,
        deep=DEEP,
    )


def _whose(users: Sequence[tuple[Method, int | None]], items: Sequence[Method]) -> str:
    """Who has this deal: "seed 0", with the methods where it is not all of them."""
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(seed for _, seed in users))
    labels = list(dict.fromkeys(item.label for item, _ in users))
    return f"seed {seeds}" if len(labels) == len(items) else f"{', '.join(labels)} (seed {seeds})"
