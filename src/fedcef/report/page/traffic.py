"""Bytes by direction, over the whole run, and by message part, in one message."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from fedcef.report.data.groups import Method
from fedcef.report.data.records import number, one_line
from fedcef.report.figures.style import amount, axis_unit, byte_unit
from fedcef.report.page.markup import curve_name, key, scrolling, stacked

DIRECTIONS = {"up": "↑ up", "down": "↓ down"}
KEY = {"up": "up, from the clients", "down": "down, to the clients"}
PARTS_KEY = {"values": "values", "indices": "indices", "other": "heads, names and checksum"}
PARTS_HELP = (
    "What one message is made of, in bytes. Up: what one client sends in one round, in a rehearsal from the point "
    "where the run ended. Down: the last round’s own message. "
    "Others may be longer or shorter; the sums above are exact."
)


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
        return self.size - sum(part.values + part.indices for part in self.parts)


def traffic(items: Sequence[Method], places: Sequence[int]) -> str:
    """Both tables; that of parts only where run folders know of them."""
    return _directions(items, places) + _messages(items, places)


def _directions(items: Sequence[Method], places: Sequence[int]) -> str:
    sent = [[float(np.mean(item.last(f"wire_{way}_bytes"))) for way in DIRECTIONS] for item in items]
    totals = [sum(pair) for pair in sent if np.isfinite(pair).all() and sum(pair) > 0]
    if not totals:
        return "<p>The run folders hold no counts of bytes.</p>"
    size, unit = axis_unit(min(totals), max(totals), log=True)
    rows = ""
    for item, place, (up, down) in zip(items, places, sent, strict=True):
        known = bool(np.isfinite([up, down]).all())
        bar = stacked({"up": up, "down": down}, max(totals)) if known else ""
        clients = item.participants
        rounds = max(1, min(record.last_round for record in item.records))
        each = amount_of((up + down) / clients / rounds) if known and clients else "–"
        cells = f"<td>{amount(up / size)}</td><td>{amount(down / size)}</td><td>{amount((up + down) / size)}</td>"
        rows += (
            f"<tr data-method={place}><th scope=row>{curve_name(place, item.label)}</th>"
            f"<td class=barcell>{bar}</td>{cells}<td>{each}</td></tr>"
        )
    heads = "".join(f"<th scope=col>{way}<br><small>{unit}</small></th>" for way in ("up", "down", "both"))
    table = (
        "<table class=traffic><thead><tr><th scope=col>method</th>"
        f"<th scope=col class=barcell>all clients, whole run</th>{heads}"
        f"<th scope=col>per client<br>and round</th></tr></thead><tbody>{rows}</tbody></table>"
    )
    return key(KEY) + scrolling(table, "Bytes by direction")


def _messages(items: Sequence[Method], places: Sequence[int]) -> str:
    rows = ""
    for item, place in zip(items, places, strict=True):
        known = next((parts for record in item.records if (parts := parts_of(record.facts))), ())
        lines = [(message, part) for message in known for part in message.parts]
        for i, (message, part) in enumerate(lines):
            name = f"<th scope=row rowspan={len(lines)}>{curve_name(place, item.label)}</th>" if i == 0 else ""
            first = part is message.parts[0]
            share = {"values": part.values, "indices": part.indices, "other": message.other if first else 0.0}
            rows += (
                f"<tr data-method={place}>{name}<td class=text>{DIRECTIONS[message.direction]}</td>"
                f"<td class=text><code>{escape(part.name)}</code></td><td class=text>{escape(part.form)}</td>"
                f"<td class=barcell>{stacked(share, message.size)}</td>"
                + "".join(f"<td>{amount_of(share[what])}</td>" for what in share)
                + "</tr>"
            )
    if not rows:
        return ""
    table = (
        "<table class=parts><thead><tr><th scope=col>method</th><th scope=col class=text>direction</th>"
        "<th scope=col class=text>part</th><th scope=col class=text>form</th><th scope=col class=barcell>share of the "
        "message</th><th scope=col>values</th><th scope=col>indices</th><th scope=col>heads</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
    head = f"<h3>In one message</h3><p class=note>{PARTS_HELP}</p>{key(PARTS_KEY)}"
    return head + scrolling(table, "Bytes by message part")


def amount_of(size: float) -> str:
    """A number of bytes with its unit."""
    if size == 0:
        return "0"
    per, unit = byte_unit(size)
    return f"{size:.0f} B" if unit == "B" else f"{amount(size / per)} {unit}"


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
            one_line(str(part.get("name"))),
            one_line(str(part.get("form"))),
            number(part.get("values")),
            number(part.get("indices")),
        )
        for part in message["parts"]
        if isinstance(part, dict)
    )
    found = Parts(direction, number(message.get("bytes")), parts)
    sound = parts and found.other >= 0 and all(part.values >= 0 and part.indices >= 0 for part in parts)
    return found if sound else None
