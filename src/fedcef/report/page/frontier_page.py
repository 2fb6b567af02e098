"""The page of a frontier: the report on its runs, with the frontier before everything else."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedcef.report.data.frontier import Frontier, Point
from fedcef.report.data.records import RunRecord
from fedcef.report.figures.style import amount, axis_unit
from fedcef.report.page.page import Lead, page

HELP = (
    "Each point is a setting: the mean over its seeds, ± the standard deviation. The line is the best accuracy for at "
    "most so many bytes; points that another one beats in both are lighter. Colours say how clients send, markers how "
    "the server does. Stars are references, by their own count of bytes; dotted lines are those of which only the "
    "bytes are known."
)


def frontier_page(found: Frontier, records: Sequence[RunRecord], path: Path) -> None:
    """Writes the interactive report to `path`."""
    totals = [point.total for point in (*found.drawn, *found.references)]
    size, unit = axis_unit(min(totals), max(totals), log=True)
    html = (
        '<section aria-labelledby="frontier"><h2 id="frontier">Accuracy against bytes</h2>'
        f"<p>{HELP}</p>"
        '<div class="plot" id="plot-frontier" style="height:460px"></div>'
        f"{_table(found, size, unit)}</section>"
    )
    data = {
        "unit": unit,
        "front": [[point.total / size, 100 * point.accuracy] for point in found.front],
        "points": [_data(found, point, size) for point in found.drawn],
        "references": [_reference(point, size) for point in found.references],
    }
    page(records, path, Lead(html, data, "frontier.js"))


def _data(found: Frontier, point: Point, size: float) -> dict[str, Any]:
    (color, dark), (_, symbol) = found.look(point)
    return {
        **_reference(point, size),
        "spread": 100 * point.spread,
        "up": point.up / size,
        "down": point.down / size,
        "front": point.on_front,
        "color": color,
        "dark": dark,
        "symbol": symbol,
        "family": escape(f"up: {point.uplink}, down: {point.downlink}"),
    }


def _reference(point: Point, size: float) -> dict[str, Any]:
    # plotly reads names as a subset of HTML, so they are escaped here as everywhere
    name, x = escape(point.label), point.total / size
    y = 100 * point.accuracy if math.isfinite(point.accuracy) else None
    return {"name": name, "x": x, "y": y, "spread": 0.0, "up": None, "down": None, "family": "by its own count"}


def _table(found: Frontier, size: float, unit: str) -> str:
    head = "".join(f"<th scope=col>{name}<br><small>{of}</small></th>" for name, of in _headers(unit))
    body = ""
    for point in sorted([*found.points, *found.references], key=lambda p: p.total):
        mark = "☆ " if point in found.references else "● " if point.on_front else ""
        spread = f" <span class=spread>± {100 * point.spread:.2f}</span>" if point.spread else ""
        known = f"{100 * point.accuracy:.2f}{spread}" if math.isfinite(point.accuracy) else "–"
        accuracy = escape(point.note) or known
        cells = [f"<td{' class=best' if point.on_front else ''}>{accuracy}</td>"]
        cells += [
            f"<td>{amount(v / size) if math.isfinite(v) else '–'}</td>" for v in (point.up, point.down, point.total)
        ]
        body += f"<tr><th scope=row>{mark}{escape(point.label)}</th>{''.join(cells)}</tr>"
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="The points, may scroll sideways"><table><thead><tr>'
        f"<th scope=col>setting</th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _headers(unit: str) -> list[tuple[str, str]]:
    return [("accuracy", "%"), ("wire up", unit), ("wire down", unit), ("wire total", unit)]
