"""Bytes by direction, over the whole run, and by message part, in one message."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from fedcef.report.data.groups import Method
from fedcef.report.data.records import as_line, as_number
from fedcef.report.data.units import axis_unit
from fedcef.report.page.render import render

DIRECTIONS = {"up": "↑ up", "down": "↓ down"}


@dataclass(frozen=True)
class Part:
    """A named vector of a message: its form on the wire, and its bytes."""

    name: str
    form: str
    values: float
    indices: float


@dataclass(frozen=True)
class Parts:
    """One message."""

    direction: str
    size: float
    parts: tuple[Part, ...]

    @property
    def other(self) -> float:
        """What is neither values nor indices: headers, names and the checksum."""
        return self.size - sum(part.values + part.indices for part in self.parts)


@dataclass(frozen=True)
class Total:
    """What a method sent in the whole run, all clients together; NaN where that is not known."""

    place: int
    label: str
    up: float
    down: float
    each: float | None  # per client and round

    @property
    def known(self) -> bool:
        """Whether both directions are."""
        return math.isfinite(self.up + self.down)


@dataclass(frozen=True)
class Totals:
    """What all methods sent, in a common unit."""

    rows: tuple[Total, ...]
    most: float
    size: float  # of the unit
    unit: str


def render_traffic(items: Sequence[Method], places: Sequence[int]) -> Markup:
    """Both tables; that of parts only where run folders know of them."""
    messages = []
    for item, place in zip(items, places, strict=True):
        known = next((parts for record in item.records if (parts := parts_of(record.facts))), ())
        # the heads of a message are counted with its first part
        lines = [(m, part, m.other if part is m.parts[0] else 0.0) for m in known for part in m.parts]
        if lines:
            messages.append((place, item.label, lines))
    return render("traffic.html", sent=_totals(items, places), messages=messages, directions=DIRECTIONS)


def _totals(items: Sequence[Method], places: Sequence[int]) -> Totals | None:
    rows = tuple(_total(item, place) for item, place in zip(items, places, strict=True))
    totals = [row.up + row.down for row in rows if row.known and row.up + row.down > 0]
    if not totals:
        return None
    return Totals(rows, max(totals), *axis_unit(min(totals), max(totals), log=True))


def _total(item: Method, place: int) -> Total:
    up, down = (float(np.mean(item.last(f"wire_{way}_bytes"))) for way in DIRECTIONS)
    rounds = max(1, min(record.last_round for record in item.records))
    clients = item.participants
    each = (up + down) / clients / rounds if clients and math.isfinite(up + down) else None
    return Total(place, item.label, up, down, each)


def parts_of(facts: dict[str, Any]) -> tuple[Parts, ...]:
    """The messages that the facts of a run tell of; nothing where they are not as `runs/facts.py` writes them."""
    messages = facts.get("messages")
    if not isinstance(messages, dict):
        return ()
    return tuple(found for way in DIRECTIONS if (found := _parts(way, messages.get(way))))


def _parts(direction: str, message: object) -> Parts | None:
    if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
        return None
    parts = tuple(
        Part(
            as_line(str(part.get("name"))),
            as_line(str(part.get("form"))),
            as_number(part.get("values")),
            as_number(part.get("indices")),
        )
        for part in message["parts"]
        if isinstance(part, dict)
    )
    found = Parts(direction, as_number(message.get("bytes")), parts)
    sound = parts and found.other >= 0 and all(part.values >= 0 and part.indices >= 0 for part in parts)
    return found if sound else None
