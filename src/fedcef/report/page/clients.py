"""How the clients differ: how many samples of each class every client holds, or quantiles where they are many."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup
from pydantic import TypeAdapter, ValidationError

from fedcef.problems.holdings import LEVELS, LISTED, Counts, Holdings, Summary
from fedcef.report.data.groups import Method
from fedcef.report.data.measures import format_measure
from fedcef.report.data.records import as_line
from fedcef.report.page.render import render

MOST_CLIENTS = 50  # rows of a table
MOST_DEALS = 6  # tables
WITH_NUMBERS = 14  # classes up to which cells carry their counts
DEEP = 78  # percent of ink beyond which text on it is light


@dataclass(frozen=True)
class Cell:
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
    """Who holds what: by quantiles, and where clients are few, each of them."""

    summary: Summary
    holdings: Holdings | None

    @property
    def identity(self) -> bytes:
        """The same for the same deal."""
        if self.holdings is None:
            return repr(self.summary).encode()
        return self._counts.tobytes()

    def rows(self, most: int) -> list[list[Cell]]:
        """The first clients, class by class."""
        assert self.holdings is not None, "clients are few"
        held, shares = self._counts[:most].tolist(), self.holdings.shares[:most].tolist()
        return [
            [Cell(*cell) for cell in zip(self.summary.classes, *of_client, strict=True)]
            for of_client in zip(held, shares, strict=True)
        ]

    def quantiles(self) -> list[tuple[str, list[str]]]:
        """Each measure, its quantiles and its mean."""
        found = self.summary
        return [
            (name, [format_measure(name, value) for value in (*values, found.means[name])])
            for name, values in found.quantiles.items()
        ]

    @property
    def _counts(self) -> Counts:
        assert self.holdings is not None, "clients are few"
        assert self.holdings.counts is not None, "their classes are known"
        return self.holdings.counts


def deal_of(facts: dict[str, Any]) -> Deal | None:
    """The deal that the facts of a run tell of; None where they are not as `runs/facts.py` writes them."""
    clients = facts.get("clients")
    if not isinstance(clients, dict):
        return None
    if "summary" in clients:
        summary = _summary(clients["summary"])
        return None if summary is None else Deal(summary, None)
    classes, counts = clients.get("classes"), clients.get("counts")
    if not isinstance(classes, list) or not isinstance(counts, list) or not classes or not counts:
        return None
    if any(not isinstance(row, list) or len(row) != len(classes) for row in counts):
        return None
    if any(type(n) is not int or not 0 <= n < 2**53 for row in counts for n in row):
        return None
    table = np.array(counts, dtype=np.int64)
    holdings = Holdings(table.sum(axis=1), tuple(as_line(str(name)) for name in classes), table)
    return Deal(holdings.summary(), holdings if len(counts) <= LISTED else None)


def _summary(found: Any) -> Summary | None:
    """The summary of many clients, if it is one."""
    try:
        summary = TypeAdapter(Summary).validate_json(json.dumps(found), strict=True)
    except ValidationError:
        return None
    numbers = [summary.gini, *summary.means.values(), *(x for values in summary.quantiles.values() for x in values)]
    sizes = {len(values) for values in summary.quantiles.values()}
    lists = {len(summary.classes), len(summary.totals), len(summary.holders)}
    whole = sizes == {len(LEVELS)} and summary.means.keys() == summary.quantiles.keys() and len(lists) == 1
    if not whole or not all(math.isfinite(x) for x in numbers):
        return None
    return replace(summary, classes=[as_line(str(name)) for name in summary.classes])


def render_clients(items: Sequence[Method]) -> Markup:
    """One table for each different deal, the first one open."""
    found: dict[bytes, tuple[Deal, list[tuple[Method, int | None]]]] = {}
    for item in items:
        for record in item.records:
            if deal := deal_of(record.facts):
                found.setdefault(deal.identity, (deal, []))[1].append((item, record.seed))
    deals = [(_whose(users, items) if len(found) > 1 else "All runs", deal) for deal, users in found.values()]
    return render(
        "clients.html",
        deals=deals[:MOST_DEALS],
        left=max(0, len(deals) - MOST_DEALS),
        most_clients=MOST_CLIENTS,
        with_numbers=WITH_NUMBERS,
        deep=DEEP,
        levels=list(LEVELS),
    )


def _whose(users: Sequence[tuple[Method, int | None]], items: Sequence[Method]) -> str:
    """Who has this deal: "seed 0", with the methods where it is not all of them."""
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(seed for _, seed in users))
    labels = list(dict.fromkeys(item.label for item, _ in users))
    return f"seed {seeds}" if len(labels) == len(items) else f"{', '.join(labels)} (seed {seeds})"
