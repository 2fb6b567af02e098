"""The page of a frontier: the report on its runs, with the frontier before everything else."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedcef.report.data.frontier import Frontier, Point
from fedcef.report.data.records import RunRecord
from fedcef.report.data.units import axis_unit
from fedcef.report.figures.frontier import look_of
from fedcef.report.page.document import Lead, write_page
from fedcef.report.page.render import render


def write_frontier_page(found: Frontier, records: Sequence[RunRecord], path: Path) -> None:
    """Writes the interactive report to `path`."""
    totals = [point.total for point in (*found.drawn, *found.references)]
    size, unit = axis_unit(min(totals), max(totals), log=True)
    points = sorted([*found.points, *found.references], key=lambda point: point.total)
    html = render("frontier.html", points=[(_mark(found, point), point) for point in points], size=size, unit=unit)
    data = {
        "unit": unit,
        "front": [[point.total / size, 100 * point.accuracy] for point in found.front],
        "points": [_data(found, point, size) for point in found.drawn],
        "references": [_reference(point, size) for point in found.references],
    }
    write_page(records, path, Lead(html, data, "frontier.js"))


def _mark(found: Frontier, point: Point) -> str:
    return "☆ " if point in found.references else "○ " if point.tie else "● " if point.on_front else ""


def _data(found: Frontier, point: Point, size: float) -> dict[str, Any]:
    (color, dark), (_, symbol) = look_of(found, point)
    return {
        **_reference(point, size),
        "spread": 100 * point.spread,
        "up": point.up / size,
        "down": point.down / size,
        "front": point.on_front,
        "color": color,
        "dark": dark,
        "symbol": f"{symbol}-open" if point.tie else symbol,
        "family": escape(f"up: {point.uplink}, down: {point.downlink}"),
    }


def _reference(point: Point, size: float) -> dict[str, Any]:
    # plotly reads names as a subset of HTML, so they are escaped here as everywhere
    name, x = escape(point.label), point.total / size
    y = 100 * point.accuracy if math.isfinite(point.accuracy) else None
    return {"name": name, "x": x, "y": y, "spread": 0.0, "up": None, "down": None, "family": "by its own count"}
