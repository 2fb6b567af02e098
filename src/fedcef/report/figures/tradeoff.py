"""Density against accuracy at the end of each run: what a structure costs, over the weights of a regulariser."""

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from fedcef.core.errors import RunError
from fedcef.report.data.looks import name_look
from fedcef.report.data.names import regularizer_title
from fedcef.report.data.records import RunRecord
from fedcef.report.figures.figure import drawing, set_log_ticks
from fedcef.report.figures.labels import Box, Label, place_labels


def draw_tradeoff(records: Sequence[RunRecord], path: Path) -> None:
    """Draws one line per regulariser, one point per weight, to a PNG, PDF or SVG file."""
    points = sorted(_point(r) for r in records if r.status == "finished" and r.summary.get("accuracy") is not None)
    if not points:
        raise RunError("There is no finished run with an accuracy to draw against its density.")
    with drawing(path) as fig:
        fig.set_size_inches(4.4, 3.2)
        ax = fig.subplots()
        ax.set_xscale("log")
        least, most = (max(pick(p[2] for p in points), 1e-3) for pick in (min, max))
        ax.set_xlim(least / (most / least or 1.0) ** 0.12 / 1.1, most * (most / least or 1.0) ** 0.12 * 1.1)
        ax.set_ylim(*_limits([p[3] for p in points]))
        set_log_ticks(ax.xaxis, most / least)
        labels = [
            label for name, group in groupby(points, key=lambda point: point[0]) for label in _line(ax, name, group)
        ]
        ax.set_xlabel("Parameters that are not zero (%)")
        ax.set_ylabel("Test accuracy (%)")
        ax.grid(color="#e5e5e5", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        fig.legend(loc="outside upper center", ncols=3, frameon=False)
        fig.draw_without_rendering()  # labels are placed by where everything is on paper
        fig.set_layout_engine("none")
        place_labels(ax, labels, _points(ax, labels), _lines(ax))


def _point(record: RunRecord) -> tuple[str, float, float, float]:
    """Regulariser, weight, density and accuracy in percent."""
    regularizer = record.config.get("regularizer", {})
    summary = record.summary
    weight = float(regularizer.get("weight", 0.0))
    return str(regularizer.get("name")), weight, 100 * summary["density"], 100 * summary["accuracy"]


def _limits(accuracies: Sequence[float]) -> tuple[float, float]:
    low, high = min(accuracies), max(accuracies)
    pad = 0.08 * (high - low) or 0.5
    return low - pad, high + 1.6 * pad


def _line(ax: Any, name: str, points: Iterable[tuple[str, float, float, float]]) -> list[Label]:
    """Draws one regulariser, and returns what is to stand beside its points."""
    style = name_look(name)
    weights, xs, ys = zip(*((weight, x, y) for _, weight, x, y in points), strict=True)
    line = {"color": style.color, "marker": style.marker, "markersize": 5, "mec": "white", "mew": 0.6}
    ax.plot(xs, ys, **line, label=regularizer_title(name))
    return [Label(f"λ = {_number(w)}", x, y, style.color) for w, x, y in zip(weights, xs, ys, strict=True)]


def _number(weight: float) -> str:
    """3e-4 and 0.01, not 0.0003 and 1e-02."""
    if weight == 0 or weight >= 1e-2:
        return f"{weight:g}"
    digits, _, power = f"{weight:e}".partition("e")
    return f"{float(digits):g}e{int(power)}"


def _points(ax: Any, labels: Sequence[Label]) -> list[Box]:
    """The points as boxes on paper."""
    return [_around(ax, ax.transData.transform((label.x, label.y)), 4) for label in labels]


def _lines(ax: Any) -> list[Box]:
    """The lines between points, as small boxes."""
    ends = [ax.transData.transform(line.get_xydata()) for line in ax.get_lines()]
    pairs = [pair for points in ends for pair in pairwise(points)]
    return [_around(ax, a + s / 40 * (b - a), 1.5) for a, b in pairs for s in range(41)]


def _around(ax: Any, at: Any, points: float) -> Box:
    reach = points * ax.figure.dpi / 72
    return Box(at[0] - reach, at[1] - reach, at[0] + reach, at[1] + reach)
