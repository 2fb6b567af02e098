"""How the clients differ: how many samples of each class every client holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcef.report.data.groups import Method
from fedcef.report.data.records import one_line
from fedcef.report.page.markup import count, scrolling

MOST_CLIENTS = 50  # rows of a table
MOST_DEALS = 6  # tables
WITH_NUMBERS = 14  # classes up to which cells carry their counts
DEEP = 78  # percent of ink beyond which text on it is light


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
    return Deal(tuple(one_line(str(name)) for name in classes), np.array(counts, dtype=np.int64))


def clients_section(items: Sequence[Method]) -> str:
    """One table for each different deal, the first one open; nothing where no folder knows of classes."""
    found: dict[bytes, tuple[Deal, list[tuple[Method, int | None]]]] = {}
    for item in items:
        for record in item.records:
            if deal := deal_of(record.facts):
                found.setdefault(deal.counts.tobytes(), (deal, []))[1].append((item, record.seed))
    html = ""
    for i, (deal, users) in enumerate(list(found.values())[:MOST_DEALS]):
        whose = _whose(users, items) if len(found) > 1 else "All runs"
        title = f"{escape(whose)} <span class=seeds>mean distance {deal.distances.mean():.2f}</span>"
        body = _summary(deal) + scrolling(_table(deal), "Samples of each class by client")
        html += f"<details{' open' if i == 0 else ''}><summary>{title}</summary>{body}</details>" if found else body
    if len(found) > MOST_DEALS:
        html += f"<p class=note>{count(len(found) - MOST_DEALS, 'more deal')} of the data not shown.</p>"
    return html


def _whose(users: Sequence[tuple[Method, int | None]], items: Sequence[Method]) -> str:
    """Who has this deal: "seed 0", with the methods where it is not all of them."""
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(seed for _, seed in users))
    labels = list(dict.fromkeys(item.label for item, _ in users))
    return f"seed {seeds}" if len(labels) == len(items) else f"{', '.join(labels)} (seed {seeds})"


def _summary(deal: Deal) -> str:
    samples, distances = deal.counts.sum(axis=1), deal.distances
    held = (deal.counts > 0).sum(axis=1)
    return (
        f"<p class=note>{count(len(samples), 'client')} with {samples.min():,} to {samples.max():,} samples and "
        f"{held.min()} to {held.max()} of {len(deal.classes)} classes. The distance of a client’s classes from those "
        f"of all is {distances.mean():.2f} in the mean, {distances.max():.2f} at most: half the sum of the differences "
        "in share, 0 where clients are alike, near 1 where they have nothing in common. Ink is a class’s share of its "
        "client.</p>"
    )


def _table(deal: Deal) -> str:
    rows = range(min(len(deal.counts), MOST_CLIENTS))
    numbers = len(deal.classes) <= WITH_NUMBERS
    heads = "".join(f"<th scope=col>{escape(name) if numbers else ''}</th>" for name in deal.classes)
    body = ""
    for i in rows:
        cells = "".join(_cell(deal, i, j, numbers) for j in range(len(deal.classes)))
        body += (
            f"<tr><th scope=row>{i}</th>{cells}<td class=sum>{deal.counts[i].sum():,}</td>"
            f"<td class=sum>{deal.distances[i]:.2f}</td></tr>"
        )
    left = len(deal.counts) - len(rows)
    rest = f"<p class=note>{count(left, 'more client')} not shown.</p>" if left else ""
    return (
        f"<table class='heat{'' if numbers else ' fine'}'><thead><tr><th scope=col>client</th>{heads}"
        f"<th scope=col class=sum>samples</th><th scope=col class=sum>distance</th></tr></thead>"
        f"<tbody>{body}</tbody></table>{rest}"
    )


def _cell(deal: Deal, i: int, j: int, numbers: bool) -> str:
    held, share = int(deal.counts[i, j]), float(deal.shares[i, j])
    ink = round(100 * share**0.7)  # small shares are seen too
    deep = " class=deep" if ink >= DEEP else ""
    title = escape(f"client {i}, class {deal.classes[j]}: {held:,} samples, {100 * share:.1f} %")
    return f'<td{deep} style="--ink-share:{ink}%" title="{title}">{f"{held:,}" if numbers and held else ""}</td>'
