"""The report as one HTML file that needs nothing else: no network, no other files.

Everything that comes from run folders is untrusted text. It enters the page through `escape`, or as JSON without `<`;
the page's own content policy forbids every request.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedcef.errors import RunError
from fedcef.report.methods import X_AXES, Curve, Method, lead_metric, log_x, log_y, methods, second_metric, span
from fedcef.report.records import Column, RunRecord, number, one_line
from fedcef.report.sections import again, count, results_table, settings_table
from fedcef.report.style import AXES, METRICS, dataset_title, extra, look, metric_title
from fedcef.report.swatch import swatch
from fedcef.report.table import results

MOST_POINTS = 1200  # of a curve; more than a screen can show
LINE_WIDTH = 2.2  # of page.js, for the dashes


@dataclass(frozen=True)
class Group:
    """Methods with panels of their own; `places` are their positions in the legend, which all groups share."""

    name: str  # the data set; "" where there is one group
    items: tuple[Method, ...]
    places: tuple[int, ...]
    metrics: tuple[str, ...]

    def key(self, metric: str) -> str:
        """The name of a panel among those of all groups."""
        return f"{metric}_{self.name}" if self.name else metric

    def title(self, metric: str) -> str:
        title = metric_title(metric)
        return f"{dataset_title(self.name)}: {title[0].lower()}{title[1:]}" if self.name else title


@dataclass(frozen=True)
class Lead:
    """A section before all others: its HTML, the data of its script, and that script's file."""

    html: str
    data: Mapping[str, Any]
    script: str


def page(records: Sequence[RunRecord], path: Path, lead: Lead | None = None) -> None:
    """Writes the interactive report to `path`."""
    items = methods(records)
    wanted = (lead_metric(items), second_metric(items), "stationarity", "density")
    metrics = tuple(metric for metric in wanted if any(item.curve(metric) for item in items))
    group = Group("", tuple(items), tuple(range(len(items))), metrics)
    axes = {axis: axis.endswith("bytes") and log_x(items, axis) for axis in X_AXES}
    write_page([group], [item.name for item in items], axes, path, lead)


def write_page(
    groups: Sequence[Group], names: Sequence[str], axes: Mapping[str, bool], path: Path, lead: Lead | None = None
) -> None:
    """Writes a page with one legend over the panels of all groups; `axes` says which ones are logarithmic."""
    plotly = extra("plotly.offline").get_plotlyjs()
    items = [item for group in groups for item in group.items]
    records = [record for item in items for record in item.records]
    panels = [(group, metric) for group in groups for metric in group.metrics]
    html = _fill(
        _file("page.html"),
        title=escape(_title(items)),
        facts=_facts(len(names), records),
        help=_help(items),
        css=_file("page.css"),
        lead=lead.html if lead else "",
        results="".join(_heading(g) + _scrolling(results_table(results(g.items), g.places)) for g in groups),
        axes="".join(_axis_switch(i, key) for i, key in enumerate(axes)),
        legend="".join(
            f'<button type="button" aria-pressed="true">{swatch(look(i))}{escape(name)}</button>'
            for i, name in enumerate(names)
        ),
        panels="".join(_panel(p, group.title(metric), metric) for p, (group, metric) in enumerate(panels)),
        settings="".join(_heading(group) + settings_table(group.items) for group in groups),
        again="".join(_heading(g) + "".join(again(r, i) for i in g.items for r in i.records) for g in groups),
        footer=escape(_versions(records)),
        data=_json(_data(groups, names, axes) | ({"lead": lead.data} if lead else {})),
        plotly=plotly,
        js=_file("page.js") + (_file(lead.script) if lead else ""),
    )
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise RunError(f"The report cannot be written to {path}: {error.strerror}.") from error


def _file(name: str) -> str:
    return resources.files("fedcef.report").joinpath(name).read_text(encoding="utf-8")


def _fill(template: str, **parts: str) -> str:
    """Puts parts in their places in one pass: what a part contains is never read as a place."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _json(data: object) -> str:
    """JSON that cannot end the script element which holds it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _heading(group: Group) -> str:
    return f"<h3>{escape(dataset_title(group.name))}</h3>" if group.name else ""


def _scrolling(table: str) -> str:
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Results, may scroll sideways">{table}</div>'


def _title(items: Sequence[Method]) -> str:
    datasets = dict.fromkeys(record.dataset for item in items for record in item.records if record.dataset)
    names = [dataset_title(name) for name in datasets]
    what = "Composite federated learning"
    return f"{what} on {', '.join(names)}" if 0 < len(names) <= 3 else what


def _facts(curves: int, records: Sequence[RunRecord]) -> str:
    rounds = max(record.last_round for record in records)
    return " · ".join([count(curves, "method"), count(len(records), "run"), f"up to {count(rounds, 'round')}"])


def _help(items: Sequence[Method]) -> str:
    aim = "Higher is better for accuracy, lower for loss" if lead_metric(items) == "accuracy" else "Lower is better"
    text = (
        f"Each curve is a method. {aim}; further left is cheaper, since the horizontal axis is what it took to get "
        "there: all bytes sent so far, up and down, by all clients. "
        "<b>Wire bytes</b> are the real lengths of the messages; the <b>paper’s bytes</b> follow the paper’s rule "
        "(8 bytes per kept entry, 4 per dense entry). 1 GB is 10<sup>9</sup> bytes. "
    )
    if any(len(item.records) > 1 for item in items):
        text += "Over several seeds a curve is the mean, its band the least and greatest, ± the standard deviation. "
    if any(item.diverged for item in items):
        text += "A curve that ends in × diverged there. "
    return text


def _versions(records: Sequence[RunRecord]) -> str:
    found = [record.summary["versions"] for record in records if isinstance(record.summary.get("versions"), dict)]
    sets = dict.fromkeys(", ".join(f"{name} {version}" for name, version in versions.items()) for versions in found)
    return one_line("Made with " + "; ".join(sets)) if sets else "Made with fedcef"


def _axis_switch(index: int, key: str) -> str:
    checked = " checked" if index == 0 else ""
    radio = f'<input type="radio" name="axis"{checked} autocomplete="off">'
    return f"<label>{radio}<span>{escape(AXES[key][1])}</span></label>"


def _panel(index: int, title: str, metric: str) -> str:
    log = f'<label class=check><input type="checkbox" id="log-y-{index}" autocomplete="off"> log scale</label>'
    return (
        f"<figure class=panel><figcaption><span>{escape(title)}</span>{'' if metric == 'accuracy' else log}"
        f'<button type="button" class="save" id="save-{index}">Save PNG</button></figcaption>'
        f'<div class="plot" id="plot-{index}"></div></figure>'
    )


def _data(groups: Sequence[Group], names: Sequence[str], axes: Mapping[str, bool]) -> dict[str, Any]:
    return {
        "methods": [_method(place, name, groups) for place, name in enumerate(names)],
        "axes": [
            {
                "key": key,
                "title": AXES[key][0],
                "bytes": key.endswith("bytes"),
                "unit": "s" if key == "wall_s" else "",
                "log": log,
            }
            for key, log in axes.items()
        ],
        "panels": [
            {
                "key": group.key(metric),
                "group": g,  # panels of a group share the reach of their x axis
                "title": group.title(metric),
                "unit": METRICS[metric][1],
                "log": log_y(group.items, metric),
                "span": [METRICS[metric][2] * value for value in span(group.items, metric) or (0.0, 1.0)],
                # else the page fits the axis to the curves shown
                "fixed": any(item.diverged for item in group.items),
            }
            for g, group in enumerate(groups)
            for metric in group.metrics
        ],
    }


def _method(place: int, name: str, groups: Sequence[Group]) -> dict[str, Any]:
    style = look(place)
    curves = {
        group.key(metric): {**_curve(curve, METRICS[metric][2]), "diverged": item.diverged > 0}
        for group in groups
        for item, where in zip(group.items, group.places, strict=True)
        for metric in group.metrics
        if where == place and (curve := item.curve(metric))
    }
    return {
        "name": escape(name),  # plotly reads names as a subset of HTML, so they are escaped here as everywhere
        "color": style.color,
        "dark": style.dark,
        "dash": ",".join(f"{LINE_WIDTH * part:g}px" for part in style.dash) or "solid",
        "symbol": style.symbol,
        "curves": curves,
    }


def _curve(curve: Curve, factor: float) -> dict[str, list[float | None]]:
    step = np.unique(np.linspace(0, curve.mean.size - 1, min(curve.mean.size, MOST_POINTS)).round().astype(int))
    columns = {key: x[step] for key, x in curve.x.items()}
    columns |= {"y": factor * curve.mean[step], "low": factor * curve.low[step], "high": factor * curve.high[step]}
    return {key: _values(column) for key, column in columns.items()}


def _values(column: Column) -> list[float | None]:
    """Six digits: more would only make the file larger."""
    return [float(f"{value:.6g}") if math.isfinite(number(value)) else None for value in column.tolist()]
