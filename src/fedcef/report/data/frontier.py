"""Accuracy against all bytes sent: one point per setting, and which of them no other one beats in both."""

import csv
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedcef.core.errors import RunError
from fedcef.report.data.fitted import Fitted
from fedcef.report.data.groups import Method, group_runs
from fedcef.report.data.names import compressor_title, method_title
from fedcef.report.data.records import RunRecord, as_line, as_number
from fedcef.report.data.units import axis_unit, format_number

DOWNLINKS = {  # of fedcef, in print
    "increment": "increment, lossless",
    "lossy": "lossy",
    "dense": "dense",
    "snapshot": "snapshot",
}
COLUMNS = (
    "kind", "label", "seeds", "accuracy_mean", "accuracy_std", "wire_up_bytes", "wire_down_bytes", "wire_bytes",
    "on_front",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """What a setting reached and what it cost; of a reference only the total is known."""

    label: str
    accuracy: float  # mean over the seeds
    spread: float = 0.0  # standard deviation
    up: float = math.nan
    down: float = math.nan
    total: float = math.nan
    seeds: int = 1
    uplink: str = ""  # the family, by how clients send
    downlink: str = ""  # and by how the server does
    note: str = ""  # why it is not compared: "diverged", "unfinished"
    on_front: bool = False
    tie: bool = False  # on the front, but the spread over the seeds cannot tell it from a cheaper point of the front


@dataclass(frozen=True)
class Frontier:
    """All settings that were run, and what they are compared with."""

    points: tuple[Point, ...]  # by bytes
    references: tuple[Point, ...]

    @property
    def front(self) -> tuple[Point, ...]:
        """The points that no other one beats in both accuracy and bytes."""
        return tuple(point for point in self.points if point.on_front)

    @property
    def stars(self) -> tuple[Point, ...]:
        """The references whose accuracy is known."""
        return tuple(point for point in self.references if math.isfinite(point.accuracy))

    @property
    def drawn(self) -> tuple[Point, ...]:
        """The points that have a place in the figure."""
        return tuple(point for point in self.points if not point.note)


def find_frontier(records: Sequence[RunRecord], references: Sequence[tuple[str, float, float | None]] = ()) -> Frontier:
    """The points of runs and of references, which are (label, bytes, accuracy if known)."""
    points = sorted((_point(item) for item in group_runs(records)), key=lambda point: (point.total, -point.accuracy))
    if not any(not point.note for point in points):
        raise RunError("There is no finished run with an accuracy to draw against its bytes.")
    best, sure, marked = -math.inf, None, []
    for point in points:
        wins = not point.note and point.accuracy > best
        tie = wins and sure is not None and point.accuracy - sure.accuracy <= max(point.spread, sure.spread)
        best, sure = (point.accuracy, sure if tie else point) if wins else (best, sure)
        marked.append(replace(point, on_front=wins, tie=tie))
    others = (Point(as_line(label), as_number(accuracy), total=total) for label, total, accuracy in references)
    return Frontier(tuple(marked), tuple(sorted(others, key=lambda point: point.total)))


def _point(item: Method) -> Point:
    accuracies = item.last("accuracy")
    mean = float(accuracies.mean())
    spread = float(accuracies.std(ddof=1)) if accuracies.size > 1 else 0.0
    up, down = float(item.last("wire_up_bytes").mean()), float(item.last("wire_down_bytes").mean())
    note = item.note or ("" if math.isfinite(mean) and up + down > 0 else "no accuracy or no bytes")
    uplink, downlink = _family(item)
    return Point(item.label, mean, spread, up, down, up + down, len(item.records), uplink, downlink, note)


def _family(item: Method) -> tuple[str, str]:
    """How the clients and how the server send."""
    algorithm, compressor = map(item.records[0].section, ("algorithm", "compressor"))
    sent = [as_line(str(compressor.get(key, ""))) for key in ("name", "values")]
    uplink = "uncompressed" if sent[0] in ("", "identity") else compressor_title(*sent)
    other = f"as in {method_title(as_line(str(algorithm.get('name', 'others'))))}"
    return uplink, DOWNLINKS.get(item.downlink, other)


def write_csv(found: Frontier, path: Path) -> None:
    """One row per setting and per reference, by bytes."""
    lines = StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    rows.writerow(COLUMNS)
    for kind, points in (("run", found.points), ("reference", found.references)):
        for p in points:
            numbers = [p.accuracy, p.spread, p.up, p.down, p.total]
            shown = [f"{value:.12g}" if math.isfinite(value) else "" for value in numbers]
            seeds, front = (p.seeds, int(p.on_front)) if kind == "run" else ("", "")
            rows.writerow([kind, p.label, seeds, *shown, front])
    try:
        path.write_text(lines.getvalue(), encoding="utf-8", newline="")
    except OSError as error:
        raise RunError(f"The frontier cannot be written to {path}: {error.strerror}.") from error


def make_frontier_table(found: Frontier) -> RenderableType:
    """The points by bytes for a terminal; ● marks the front, ○ its ties, ☆ what was given as a reference."""
    points = sorted([*found.points, *found.references], key=lambda point: point.total)
    totals = [point.total for point in points if point.total > 0]
    size, unit = axis_unit(min(totals), max(totals), log=True)

    def make(without: Collection[str]) -> Table:
        view = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        view.add_column("")
        view.add_column("setting", overflow="fold", min_width=8, max_width=44)
        ways = [name for name in ("wire up", "wire down", "wire total") if name not in without]
        for name in ("accuracy\n%", *(f"{name}\n{unit}" for name in ways)):
            view.add_column(name, justify="right", no_wrap=True)
        for point in points:
            mark = "☆" if point in found.references else "○" if point.tie else "●" if point.on_front else ""
            spread = f" ±{100 * point.spread:.2f}" if point.spread else ""
            accuracy = point.note or (f"{100 * point.accuracy:.2f}{spread}" if math.isfinite(point.accuracy) else "–")
            sent = {"wire up": point.up, "wire down": point.down, "wire total": point.total}
            cells = [mark, point.label, accuracy, *(format_number(sent[name] / size) for name in ways)]
            style = "bold" if point.on_front else "red" if point.note else "dim"
            view.add_row(*(Text(cell, style=style) for cell in cells))
        return view

    return Fitted(make, ["wire up", "wire down"])
