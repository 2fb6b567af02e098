"""What the page's script reads: the panels, their axes, and every method's curves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

import numpy as np

from fedcef.report.data.groups import CLOCK, MEASURED, Curve, Group, lead_metric, log_y, span
from fedcef.report.data.link_time import ClientLink
from fedcef.report.data.looks import Look, legend_looks
from fedcef.report.data.names import AXES, METRICS
from fedcef.report.data.records import Column, as_number

MOST_POINTS = 1200  # of a curve; more than a screen can show
LINE_WIDTH = 2.2  # of curves.js, for the dashes


def collect_data(
    groups: Sequence[Group], names: Sequence[str], axes: Mapping[str, bool], link: ClientLink
) -> dict[str, Any]:
    """Everything for the script; `axes` says which ones are logarithmic."""
    return {
        "methods": [
            _method(place, name, look, groups)
            for place, (name, look) in enumerate(zip(names, legend_looks(groups), strict=True))
        ],
        "axes": [{"key": key, "title": AXES[key][0], "log": log} for key, log in axes.items()],
        "panels": [_panel(g, group, metric) for g, group in enumerate(groups) for metric in group.metrics],
        "targets": [_target(group) for group in groups],
        "network": asdict(link),
    }


def _panel(g: int, group: Group, metric: str) -> dict[str, Any]:
    return {
        "key": group.key(metric),
        "group": g,  # panels of a group share the reach of their x axis
        "title": group.title(metric),
        "unit": METRICS[metric][1],
        "log": log_y(group.items, metric),
        "span": [METRICS[metric][2] * value for value in span(group.items, metric) or (0.0, 1.0)],
        # else the page fits the axis to the curves shown
        "fixed": any(item.diverged for item in group.items),
    }


def _target(group: Group) -> dict[str, Any]:
    """The metric whose price is asked for, and what every method that did not diverge has reached of it."""
    metric = lead_metric(group.items)
    sign = 1.0 if metric == "accuracy" else -1.0
    curves = [c for item in group.items if not item.diverged and (c := item.curve(metric))]
    best = [float(METRICS[metric][2] * sign * (sign * c.mean).max()) for c in curves]
    common = sign * min((sign * value for value in best), default=0.0)
    return {
        "key": group.key(metric),
        "name": METRICS[metric][0],
        "unit": METRICS[metric][1],
        "up": sign > 0,
        "start": _rounded(common, up=sign < 0),
    }


def _rounded(value: float, up: bool) -> float:
    """To three digits, to the side that is easier to reach."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    size = 10.0 ** (2 - math.floor(math.log10(abs(value))))
    return (math.ceil if up else math.floor)(value * size) / size


def _method(place: int, name: str, look: Look, groups: Sequence[Group]) -> dict[str, Any]:
    own = [(g, item) for g in groups for item, where in zip(g.items, g.places, strict=True) if where == place]
    curves = {
        group.key(metric): {
            **_curve(curve, METRICS[metric][2]),
            "participants": item.participants,
            "diverged": item.diverged > 0,
        }
        for group, item in own
        for metric in group.metrics
        if (curve := item.curve(metric))
    }
    return {
        "name": escape(name),  # plotly reads names as a subset of HTML, so they are escaped here as everywhere
        "color": look.color,
        "dark": look.dark,
        "dash": ",".join(f"{LINE_WIDTH * part:g}px" for part in look.dash) or "solid",
        "symbol": look.symbol,
        "curves": curves,
    }


def _curve(curve: Curve, factor: float) -> dict[str, list[float | None]]:
    step = np.unique(np.linspace(0, curve.mean.size - 1, min(curve.mean.size, MOST_POINTS)).round().astype(int))
    columns = {key: curve.x[key][step] for key in (*MEASURED, CLOCK) if key in curve.x}  # the script knows network time
    columns |= {"y": factor * curve.mean[step], "low": factor * curve.low[step], "high": factor * curve.high[step]}
    return {key: _values(column) for key, column in columns.items()}


def _values(column: Column) -> list[float | None]:
    """Six digits: more would only make the file larger."""
    return [float(f"{value:.6g}") if math.isfinite(as_number(value)) else None for value in column.tolist()]
