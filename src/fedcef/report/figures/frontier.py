"""The figure of a frontier: families by colour and marker, the front as a staircase, its points named.

Points of the front that the spread over the seeds cannot tell from a cheaper one are open.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcef.core.extras import needed
from fedcef.report.data.frontier import Frontier, Point
from fedcef.report.data.looks import COLORS, MARKERS, distinct
from fedcef.report.data.names import metric_title
from fedcef.report.data.units import axis_unit
from fedcef.report.figures.figure import drawing, set_log_ticks
from fedcef.report.figures.labels import Box, Label, place_labels

INK, SOFT = "#222222", "#666666"
DECADES = 3e3
LIGHT = 0.38  # the strength of dominated points


def draw_frontier(found: Frontier, path: Path) -> None:
    """Draws the points to a PNG, PDF or SVG file, by the suffix of `path`."""
    totals = [point.total for point in (*found.drawn, *found.references)]
    size, unit = axis_unit(min(totals), max(totals), log=True)
    with drawing(path) as fig:
        fig.set_size_inches(7.2, 4.7)
        ax = fig.subplots()
        ax.set_xscale("log")
        ax.set_xlim(min(totals) / size / 1.6, max(totals) / size * 1.6)
        ax.set_ylim(*_limits(found))
        ratio = max(totals) / min(totals)
        set_log_ticks(ax.xaxis, 100 if ratio < DECADES else ratio)  # a wide panel has room for 1, 2, 5
        ax.set_xlabel(f"Sent on the wire in the whole run, up and down, all clients ({unit})")
        ax.set_ylabel(metric_title("accuracy"))
        ax.grid(True, color="#e6e6e6", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        _staircase(ax, found, size)
        for point in found.drawn:
            _draw(ax, found, point, size)
        for point in found.references:
            if point in found.stars:
                ax.plot(point.total / size, 100 * point.accuracy, **_star(), zorder=4)
            else:
                _mark_bytes(ax, point, size)
        _legend(ax, found)
        fig.draw_without_rendering()  # labels are placed by where everything is on paper
        fig.set_layout_engine("none")
        _labels(ax, found, size)


def look_of(found: Frontier, point: Point) -> tuple[tuple[str, str], tuple[str, str]]:
    """Colours (on light, on dark) by the uplink and markers (matplotlib's, plotly's) by the downlink."""
    color = distinct([p.uplink for p in found.drawn], len(COLORS))[point.uplink]
    marker = distinct([p.downlink for p in found.drawn], len(MARKERS))[point.downlink]
    return COLORS[color], MARKERS[marker]


def _limits(found: Frontier) -> tuple[float, float]:
    points = (*found.drawn, *found.stars)
    low = min(100 * (point.accuracy - point.spread) for point in points)
    high = max(100 * (point.accuracy + point.spread) for point in points)
    pad = max(0.08 * (high - low), 0.2)
    return low - 1.6 * pad, high + pad


def _staircase(ax: Any, found: Frontier, size: float) -> None:
    """The best accuracy for at most so many bytes."""
    xs = [point.total / size for point in found.front] + [ax.get_xlim()[1]]
    ys = [100 * point.accuracy for point in found.front]
    ax.step(xs, [*ys, ys[-1]], where="post", color="#8a8a8a", lw=1.1, zorder=1.5)


def _draw(ax: Any, found: Frontier, point: Point, size: float) -> None:
    (color, _), (marker, _) = look_of(found, point)
    style = {"color": color, "marker": marker, "ms": 6.2, "mec": "white", "mew": 0.7, "ls": "none"}
    if point.tie:
        style |= {"mfc": "white", "mec": color, "mew": 1.2, "ms": 5.6}
    strength = 1.0 if point.on_front else LIGHT
    spread = 100 * point.spread if point.spread else None
    ax.errorbar(
        point.total / size,
        100 * point.accuracy,
        yerr=spread,
        elinewidth=0.9,
        capsize=1.8,
        alpha=strength,
        zorder=4 if point.on_front else 3,
        **style,
    )


def _mark_bytes(ax: Any, point: Point, size: float) -> None:
    """A line for a reference of which only the bytes are known."""
    ax.axvline(point.total / size, color=SOFT, lw=0.8, ls=(0, (1.5, 2)), zorder=1.2)
    text = ax.text(point.total / size, 0.01, "", transform=ax.get_xaxis_transform(), rotation=90, fontsize=7)
    text.set(color=SOFT, ha="right", va="bottom", in_layout=False)
    text.set_parse_math(False)
    text.set_text(point.label)


def _star() -> dict[str, Any]:
    return {"marker": "*", "ms": 9, "color": "white", "mec": INK, "mew": 0.9, "ls": "none"}


def _legend(ax: Any, found: Frontier) -> None:
    """Colours say how clients send, markers how the server does."""
    line = needed("matplotlib.lines", "figures", "plot").Line2D
    handles, names = [], []
    for uplink in dict.fromkeys(p.uplink for p in found.drawn):
        (color, _), _ = look_of(found, next(p for p in found.drawn if p.uplink == uplink))
        handles.append(line([], [], marker="s", ms=6, ls="none", color=color))
        names.append(f"up: {uplink}")
    for downlink in dict.fromkeys(p.downlink for p in found.drawn):
        _, (marker, _) = look_of(found, next(p for p in found.drawn if p.downlink == downlink))
        handles.append(line([], [], marker=marker, ms=6, ls="none", color=SOFT))
        names.append(f"down: {downlink}")
    handles.append(line([], [], color="#8a8a8a", lw=1.1))
    names.append("the front")
    if any(point.tie for point in found.front):
        handles.append(line([], [], marker="o", ms=5.6, ls="none", mfc="white", mec=SOFT, mew=1.2))
        names.append("a tie with a cheaper one")
    if found.stars:
        handles.append(line([], [], **_star()))
        names.append("reference")
    for columns in range(min(4, -(-len(names) // 3)), 0, -1):
        box = _lines(ax.figure, handles, names, columns)
        if columns == 1 or box.get_window_extent().width <= ax.figure.bbox.width:
            break
        box.remove()


def _lines(fig: Any, handles: Sequence[Any], names: Sequence[str], columns: int) -> Any:
    """The legend in so many columns; names are text, not formulas."""
    places = [str(i) for i in range(len(names))]
    box = fig.legend(handles, places, loc="outside upper center", ncols=columns, frameon=False, handlelength=1.6)
    for text, name in zip(box.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
    return box


def _labels(ax: Any, found: Frontier, size: float) -> None:
    scale = ax.figure.dpi / 72
    spots = [(p, ax.transData.transform((p.total / size, 100 * p.accuracy))) for p in (*found.drawn, *found.stars)]
    obstacles = [Box(x - 4 * scale, y - 4 * scale, x + 4 * scale, y + 4 * scale) for _, (x, y) in spots]
    soft = [box for p, (x, _) in spots if p.spread for box in _bar(ax, p, x, scale)] + _stairs(ax, found, size, scale)
    named = [(p, look_of(found, p)[0][0]) for p in found.front] + [(p, INK) for p in found.stars]
    labels = [Label(p.label, p.total / size, 100 * p.accuracy, color) for p, color in named]
    place_labels(ax, labels, obstacles, soft)


def _bar(ax: Any, point: Point, x: float, scale: float) -> list[Box]:
    ends = [ax.transData.transform((1.0, 100 * (point.accuracy + s * point.spread)))[1] for s in (-1, 1)]
    return [Box(x - 2 * scale, ends[0], x + 2 * scale, ends[1])]


def _stairs(ax: Any, found: Frontier, size: float, scale: float) -> list[Box]:
    """The staircase as thin boxes."""
    corners: Sequence[Any] = [ax.transData.transform((p.total / size, 100 * p.accuracy)) for p in found.front]
    boxes = []
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], (ax.get_window_extent().x1, corners[-1][1])], strict=True):
        boxes += [Box(x0, y0 - scale, x1, y0 + scale), Box(x1 - scale, min(y0, y1), x1 + scale, max(y0, y1))]
    return boxes
