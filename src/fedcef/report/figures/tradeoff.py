"""Density against accuracy at the end of each run: what a structure costs, over the weights of a regulariser."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from fedcef.core.errors import RunError
from fedcef.report.data.looks import name_look
from fedcef.report.data.records import RunRecord
from fedcef.report.figures.figure import drawing, set_log_ticks


def draw_tradeoff(records: Sequence[RunRecord], path: Path) -> None:
    """Draws one line per regulariser, one point per weight, to a PNG, PDF or SVG file."""
    points = sorted(_point(r) for r in records if r.status == "finished" and r.summary.get("accuracy") is not None)
    if not points:
        raise RunError("There is no finished run with an accuracy to draw against its density.")
    with drawing(path) as fig:
        fig.set_size_inches(4.4, 3.2)
        ax = fig.subplots()
        for index, (name, group) in enumerate(groupby(points, key=lambda point: point[0])):
            _line(ax, name, list(group), index)
        ax.set_xscale("log")
        ax.margins(0.2)
        set_log_ticks(ax.xaxis, max(p[2] for p in points) / min(p[2] for p in points))
        ax.set_xlabel("Parameters that are not zero (%)")
        ax.set_ylabel("Test accuracy (%)")
        ax.grid(color="#e5e5e5", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)


def _point(record: RunRecord) -> tuple[str, float, float, float]:
    """Regulariser, weight, density and accuracy in percent."""
    regularizer = record.config.get("regularizer", {})
    summary = record.summary
    weight = float(regularizer.get("weight", 0.0))
    return str(regularizer.get("name")), weight, 100 * summary["density"], 100 * summary["accuracy"]


def _line(ax: Any, name: str, points: list[tuple[str, float, float, float]], index: int) -> None:
    style = name_look(name)
    xs, ys = [p[2] for p in points], [p[3] for p in points]
    ax.plot(xs, ys, color=style.color, marker=style.marker, markersize=5, label=name.replace("_", " "))
    # labels of one line stand to its lower right, of the next to its upper left
    place: dict[str, Any] = {"xytext": (5, -9)} if index % 2 == 0 else {"xytext": (-5, 5), "ha": "right"}
    for _, weight, x, y in points:
        ax.annotate(f"λ={weight:g}", (x, y), textcoords="offset points", fontsize=6.5, color=style.color, **place)
