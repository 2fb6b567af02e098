"""The figure for a paper: accuracy and train loss against bytes sent, by both counts."""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcef.core.errors import FedcefError, RunError
from fedcef.core.extras import needed
from fedcef.report.data.groups import Curve, Method, group_runs, lead_metric, log_x, log_y, second_metric, span
from fedcef.report.data.looks import Look, choose_looks
from fedcef.report.data.names import AXES, METRICS, metric_title
from fedcef.report.data.records import RunRecord
from fedcef.report.data.units import axis_unit

# Dates are left out of the files: the same runs give the same bytes.
METADATA: dict[str, dict[str, Any]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "legend.fontsize": 8.2,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#555555",
    "axes.labelcolor": "#222222",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.width": 0.5,
    "ytick.minor.width": 0.5,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.fonttype": "none",
    "svg.hashsalt": "fedcef",
}
LEGEND_LENGTH = 44
LEGEND_PER_INCH = 15.6  # characters


@dataclass(frozen=True)
class Reach:
    """An x axis: least and greatest count, its scale and its unit."""

    low: float
    high: float
    log: bool
    size: float  # of its unit
    unit: str


def draw_figure(records: Sequence[RunRecord], path: Path) -> None:
    """Draws the runs to a PNG, PDF or SVG file, by the suffix of `path`."""
    every = group_runs(records)
    metrics = (lead_metric(every), _beside(every))
    items, looks = with_curves(every, choose_looks(every), metrics)
    width = 7.2
    with drawing(path) as fig:
        fig.set_size_inches(width, 5.0 + 0.17 * legend_rows(items, width))
        fig.get_layout_engine().set(w_pad=0.06, h_pad=0.05, wspace=0.03, hspace=0.04)
        grid = fig.subplots(2, 2, sharey="col")
        reach = _reach(items)
        for row, axis in zip(grid, ("wire_bytes", "paper_bytes"), strict=True):
            for ax, metric in zip(row, metrics, strict=True):
                draw_panel(ax, items, looks, axis, metric, reach)
        draw_legend(fig, items, looks, width)


def with_curves(
    items: Sequence[Method], looks: Sequence[Look], metrics: Sequence[str]
) -> tuple[list[Method], list[Look]]:
    """The methods that have a curve of one of the metrics, with their looks; all of them if none has."""
    shown = [i for i, item in enumerate(items) if any(item.curve(metric) for metric in metrics)] or range(len(items))
    return [items[i] for i in shown], [looks[i] for i in shown]


def _beside(items: Sequence[Method]) -> str:
    """The metric of the right panels: beside a gap to the optimum the loss says nothing, but the sparsity does."""
    second = second_metric(items)
    densities = [c.mean.min() for item in items if (c := item.curve("density"))]
    return (
        "density"
        if lead_metric(items) == "gap" and second == "train_loss" and min(densities, default=1) < 1
        else second
    )


@contextmanager
def drawing(path: Path) -> Iterator[Any]:
    """An empty figure in the style of all, written to `path` in the end."""
    suffix = path.suffix.lower()
    if suffix not in METADATA:
        raise FedcefError(f"A figure is a .png, .pdf or .svg file, not {path.name!r}.")
    matplotlib, canvas = needed("matplotlib", "figures", "plot"), needed("matplotlib.figure", "figures", "plot")
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a label's script that the font does not have
        fig = canvas.Figure(layout="constrained")
        yield fig
        try:
            fig.savefig(path, dpi=300, metadata=METADATA[suffix])
        except OSError as error:
            raise RunError(f"The figure cannot be written to {path}: {error.strerror}.") from error


def draw_panel(ax: Any, items: Sequence[Method], looks: Sequence[Look], axis: str, metric: str, reach: Reach) -> None:
    """Draws a metric of the methods against what it took."""
    curves = [(i, item, c) for i, item in enumerate(items) if (c := item.curve(metric))]
    factor, size = METRICS[metric][2], reach.size
    ax.set_xlabel(f"{AXES[axis][0]} ({reach.unit})" if reach.unit else AXES[axis][0])
    ax.set_ylabel(metric_title(metric))
    ax.grid(True, color="#e6e6e6", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    limits = _limits(ax, items, metric, started=reach.log)
    if reach.log:
        ax.set_xscale("log")
        ax.set_xlim(reach.low / size / 1.15, reach.high / size * 1.15)
        set_log_ticks(ax.xaxis, reach.high / reach.low)
    else:
        ax.set_xlim(-0.02 * reach.high / size, 1.03 * reach.high / size)
    if not curves:
        ax.text(0.5, 0.5, "not recorded", transform=ax.transAxes, ha="center", va="center", color="#888888")
    for i, item, curve in curves:
        _draw(ax, curve, curve.x[axis] / size, factor, looks[i], i / max(1, len(items)))
        if item.diverged and limits:
            _mark_end(ax, curve.x[axis] / size, np.clip(curve.mean * factor, *limits), limits, looks[i])


def _reach(items: Sequence[Method]) -> Reach:
    """The axis of both counts: the same, to compare them."""
    curves = [c for item in items if (c := item.curve(lead_metric(items)))]
    counts = [c.x[axis] for c in curves for axis in ("wire_bytes", "paper_bytes")]
    positive = [some for count in counts if (some := count[count > 0]).size]
    if not positive:
        return Reach(0.0, 1.0, False, *axis_unit(0.0, 1.0, False))
    low, high = min(float(x.min()) for x in positive), max(float(x.max()) for x in positive)
    log = log_x(items, "wire_bytes") or log_x(items, "paper_bytes")
    return Reach(low, high, log, *axis_unit(low, high, log))


def _limits(ax: Any, items: Sequence[Method], metric: str, started: bool) -> tuple[float, float] | None:
    """Sets the y axis by the runs that did not diverge."""
    limits = span(items, metric, started)
    if limits is None:
        return None
    low, high = (value * METRICS[metric][2] for value in limits)
    if log_y(items, metric):
        ax.set_yscale("log")
        set_log_ticks(ax.yaxis, high / low)
        pad = max(high / low, 1.01) ** 0.05
        low, high = low / pad, high * pad
    else:
        pad = 0.05 * (high - low or abs(high) or 1.0)
        low, high = low - pad, high + pad
    ax.set_ylim(low, high)
    return low, high


def _draw(ax: Any, curve: Curve, x: Any, factor: float, style: Look, phase: float) -> None:
    shown = np.isfinite(x) & ((x > 0) | (ax.get_xscale() != "log"))
    x = x[shown]
    if (curve.high > curve.low).any():
        band = {"color": style.color, "alpha": 0.16, "linewidth": 0}
        ax.fill_between(x, factor * curve.low[shown], factor * curve.high[shown], **band)
    every = (0.05 + 0.14 * phase, 0.14) if x.size > 12 else 1  # by distance on paper; the phase keeps markers apart
    ax.plot(x, factor * curve.mean[shown], **_line(style), markevery=every)


def _mark_end(ax: Any, x: Any, y: Any, limits: tuple[float, float], style: Look) -> None:
    """A × where a curve that diverged ends, or leaves the panel for good."""
    before = np.flatnonzero(y != y[-1])
    end = int(before[-1]) + 1 if y[-1] in limits and before.size else y.size - 1
    if x[end] > 0 or ax.get_xscale() != "log":
        mark = {"marker": "x", "ms": 6.5, "mew": 1.8, "color": style.color}
        ax.plot(x[end], y[end], **mark, clip_on=False, in_layout=False, zorder=5)


def _line(style: Look) -> dict[str, Any]:
    dash: Any = (0, style.dash) if style.dash else "solid"
    marker = {"marker": style.marker, "ms": 4.4, "mec": "white", "mew": 0.6}
    return {"color": style.color, "lw": 1.5, "ls": dash, "solid_capstyle": "round", **marker}


def set_log_ticks(axis: Any, ratio: float) -> None:
    """Plain numbers on a logarithmic axis: at the powers of ten, and at 2 and 5 where those are few."""
    ticker = needed("matplotlib.ticker", "figures", "plot")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if ratio < 120 else (1.0,)))
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}") if ratio < 1e5 else ticker.LogFormatterMathtext())
    axis.set_minor_formatter(ticker.NullFormatter())
    if ratio >= 1e5:
        axis.set_minor_locator(ticker.NullLocator())


def legend_rows(items: Sequence[Method], width: float) -> int:
    """How many lines the legend takes in so many inches."""
    return math.ceil(len(items) / _legend_columns(items, width))


def _legend_columns(items: Sequence[Method], width: float) -> int:
    longest = max(len(_short(item.name)) for item in items)
    return max(1, min(len(items), 4, int(LEGEND_PER_INCH * width) // (longest + 9)))


def _short(name: str) -> str:
    return name if len(name) <= LEGEND_LENGTH else name[: LEGEND_LENGTH - 1] + "…"


def draw_legend(fig: Any, items: Sequence[Method], looks: Sequence[Look], width: float) -> None:
    """The methods' names above the panels."""
    line = needed("matplotlib.lines", "figures", "plot").Line2D
    handles = [line([], [], **_line(style)) for style in looks]
    places = [str(i) for i in range(len(items))]
    columns = _legend_columns(items, width)
    box = fig.legend(handles, places, loc="outside upper center", ncols=columns, frameon=False, handlelength=3.4)
    for text, item in zip(box.get_texts(), items, strict=True):
        text.set_parse_math(False)  # a label is text: neither `$` nor a leading `_` means anything in it
        text.set_text(_short(item.name))
