"""What the page's script reads: the panels, their axes, and every method's curves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from fedcef.report.data.answer import find_target
from fedcef.report.data.groups import CLOCK, MEASURED, Curve, Group, Method, lead_metric, log_y, settings_as_text, span
from fedcef.report.data.link_time import ClientLink
from fedcef.report.data.looks import Look, legend_looks
from fedcef.report.data.names import AXES, METRICS
from fedcef.report.data.records import Column, as_number
from fedcef.report.data.thinning import thin
from fedcef.report.page.settings import NOT_SHOWN

MOST_POINTS = 1200  # of a curve; more than a screen can show
FEWEST_POINTS = 40
MOST_NUMBERS = 300_000  # of all curves together: about 2.5 MB
MOST_VALUES = 12  # of a setting by which curves can be grouped
LINE_WIDTH = 2.2  # of curves.js, for the dashes


def collect_data(
    groups: Sequence[Group], names: Sequence[str], axes: Mapping[str, bool], link: ClientLink
) -> dict[str, Any]:
    """Everything for the script; `axes` says which ones are logarithmic."""
    most = _points(groups)
    return {
        "methods": [
            _method(place, name, look, groups, most)
            for place, (name, look) in enumerate(zip(names, legend_looks(groups), strict=True))
        ],
        "axes": [{"key": key, "title": AXES[key][0], "log": log} for key, log in axes.items()],
        "panels": [_panel(g, group, metric) for g, group in enumerate(groups) for metric in group.metrics],
        "targets": [_target(group) for group in groups],
        "groupings": find_groupings(groups, len(names)),
        "network": asdict(link),
    }


def is_thinned(groups: Sequence[Group]) -> bool:
    """Whether some curve has more points than the page holds of it."""
    most = _points(groups)
    return any(
        curve.mean.size > most for _, item, metrics in _each(groups) for curve in _curves(item, metrics).values()
    )


def find_groupings(groups: Sequence[Group], methods: int) -> list[list[Any]]:
    """The settings by which curves can be told apart, each with its value for every method."""
    flat: list[dict[str, str]] = [{} for _ in range(methods)]
    for group in groups:
        for item, place in zip(group.items, group.places, strict=True):
            flat[place] = flat[place] or settings_as_text(item.records[0].config)
    keys = dict.fromkeys(["algorithm.name", *(key for settings in flat for key in settings)])
    found = []
    for key in keys:
        values = [settings.get(key, "–") for settings in flat]
        if key not in (*NOT_SHOWN, "seed") and 1 < len(set(values)) <= min(MOST_VALUES, methods - 1):
            found.append([key, values])
    return found


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
    """The metric whose price is asked for, and at first that of the sentence that the page opens with."""
    metric = lead_metric(group.items)
    target = find_target(group.items) or 0.0
    return {
        "key": group.key(metric),
        "name": METRICS[metric][0],
        "unit": METRICS[metric][1],
        "up": metric == "accuracy",
        "start": float(f"{METRICS[metric][2] * target:.6g}"),
    }


def _method(place: int, name: str, look: Look, groups: Sequence[Group], most: int) -> dict[str, Any]:
    own = [
        (group, item)
        for group in groups
        for item, where in zip(group.items, group.places, strict=True)
        if where == place
    ]
    tables: list[dict[str, list[float | None]]] = []
    curves: dict[str, Any] = {}
    for group, item in own:
        known = _curves(item, group.metrics)
        for some in _sharing(known):  # what it took to get there is the same for all
            kept = thin([known[metric].mean for metric in some], most)
            x = known[some[0]].x
            tables.append({key: _values(x[key][kept]) for key in (*MEASURED, CLOCK) if key in x})
            for metric in some:
                curve = _drawn(known[metric], kept, METRICS[metric][2])
                facts = {"x": len(tables) - 1, "participants": item.participants, "diverged": item.diverged > 0}
                curves[group.key(metric)] = curve | facts
    return {
        "name": escape(name),  # plotly reads names as a subset of HTML, so they are escaped here as everywhere
        "text": name,
        "color": look.color,
        "dark": look.dark,
        "dash": ",".join(f"{LINE_WIDTH * part:g}px" for part in look.dash) or "solid",
        "symbol": look.symbol,
        "x": tables,
        "curves": curves,
    }


def _each(groups: Sequence[Group]) -> list[tuple[Group, Method, Sequence[str]]]:
    return [(group, item, group.metrics) for group in groups for item in group.items]


def _curves(item: Method, metrics: Sequence[str]) -> dict[str, Curve]:
    return {metric: curve for metric in metrics if (curve := item.curve(metric))}


def _sharing(curves: Mapping[str, Curve]) -> list[list[str]]:
    """The metrics in groups that were evaluated at the same rounds."""
    found: dict[int, list[str]] = {}
    for metric, curve in curves.items():
        found.setdefault(id(curve.x), []).append(metric)
    return list(found.values())


def _points(groups: Sequence[Group]) -> int:
    """How many points a curve may have, for all to fit in the page."""
    columns = 0
    for _, item, metrics in _each(groups):
        known = _curves(item, metrics)
        columns += (len(MEASURED) + 1) * len(_sharing(known)) + (3 if len(item.records) > 1 else 1) * len(known)
    return min(MOST_POINTS, max(FEWEST_POINTS, MOST_NUMBERS // max(1, columns)))


def _drawn(curve: Curve, kept: Any, factor: float) -> dict[str, Any]:
    """The points that are drawn; a single run has no band."""
    columns = {"y": curve.mean}
    if curve.high is not curve.low and (curve.high > curve.low).any():
        columns |= {"low": curve.low, "high": curve.high}
    return {key: _values(factor * column[kept]) for key, column in columns.items()}


def _values(column: Column) -> list[float | None]:
    """Six digits: more would only make the file larger."""
    return [float(f"{value:.6g}") if math.isfinite(as_number(value)) else None for value in column.tolist()]
