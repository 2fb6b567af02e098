"""The report as one HTML file that needs nothing else: no network, no other files.

Everything that comes from run folders is untrusted text. It enters the page through `escape`, or as JSON without `<`;
the page's own content policy forbids every request.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from fedcef.core.errors import RunError
from fedcef.report.data.groups import X_AXES, Method, lead_metric, log_x, methods, shown_metrics
from fedcef.report.data.link_time import Network
from fedcef.report.data.records import RunRecord, one_line
from fedcef.report.data.table import results
from fedcef.report.figures.style import AXES, METRICS, dataset_title, look
from fedcef.report.figures.swatch import swatch
from fedcef.report.page.clients import clients_section
from fedcef.report.page.curves import Group, page_data
from fedcef.report.page.layers import layers_section
from fedcef.report.page.markup import count, curve_name, scrolling
from fedcef.report.page.reproduce import reproduce
from fedcef.report.page.sections import results_table, settings_table
from fedcef.report.page.traffic import traffic

SCRIPTS = ("page.js", "curves.js", "target.js", "tables.js")
TARGET_HEADS = ("rounds", "wire bytes", "paper’s bytes", "wall time", "network time")
NO_CLIENTS = "<p class=note>The run folders do not say which classes the clients hold.</p>"
NO_LAYERS = "<p class=note>No run has finished, so there is no model to look into.</p>"


@dataclass(frozen=True)
class Lead:
    """A section before all others: its HTML, the data of its script, and that script's file."""

    html: str
    data: Mapping[str, Any]
    script: str


def page(records: Sequence[RunRecord], path: Path, lead: Lead | None = None, network: Network = Network()) -> None:
    """Writes the interactive report to `path`."""
    items = methods(records)
    group = Group("", tuple(items), tuple(range(len(items))), shown_metrics(items))
    axes = {axis: axis.endswith("bytes") and log_x(items, axis) for axis in X_AXES}
    write_page([group], [item.name for item in items], axes, path, lead, network)


def write_page(
    groups: Sequence[Group],
    names: Sequence[str],
    axes: Mapping[str, bool],
    path: Path,
    lead: Lead | None = None,
    network: Network = Network(),
) -> None:
    """Writes a page with one legend over the panels of all groups; `axes` says which ones are logarithmic."""
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
        results=_each(groups, lambda g: results_table(results(g.items), g.places)),
        axes="".join(_axis_switch(i, key) for i, key in enumerate(axes)),
        legend="".join(
            f'<button type="button" aria-pressed="true">{swatch(look(i))}{escape(name)}</button>'
            for i, name in enumerate(names)
        ),
        **{name: f"{value:g}" for name, value in vars(network).items() if name != "compute"},
        compute=" checked" if network.compute else "",
        shape=" first-wide" if len(groups) == 1 and len(panels) == 5 else "",
        panels="".join(_panel(p, group.title(metric), metric) for p, (group, metric) in enumerate(panels)),
        targets=_each(groups, lambda g: _target(groups.index(g), g)),
        traffic=_each(groups, lambda g: traffic(g.items, g.places)),
        clients=_each(groups, lambda g: clients_section(g.items) or NO_CLIENTS),
        layers=_each(groups, lambda g: layers_section(g.items, g.places) or NO_LAYERS),
        settings=_each(groups, lambda g: settings_table(g.items)),
        again=_each(groups, lambda g: reproduce(g.items)),
        footer=escape(_versions(records)),
        data=_json(page_data(groups, names, axes, network) | ({"lead": lead.data} if lead else {})),
        plotly=_file("vendor/plotly-basic.min.js"),
        js="".join(_file(name) for name in (*SCRIPTS, *([lead.script] if lead else []))),
    )
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise RunError(f"The report cannot be written to {path}: {error.strerror}.") from error


def _file(name: str) -> str:
    return resources.files("fedcef.report.page").joinpath(name).read_text(encoding="utf-8")


def _fill(template: str, **parts: str) -> str:
    """Puts parts in their places in one pass: what a part contains is never read as a place."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _json(data: object) -> str:
    """JSON that cannot end the script element which holds it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _each(groups: Sequence[Group], section: Callable[[Group], str]) -> str:
    """A section for every group, under its data set's name where there are several."""
    heads = [f"<h3>{escape(dataset_title(group.name))}</h3>" if group.name else "" for group in groups]
    return "".join(head + section(group) for head, group in zip(heads, groups, strict=True))


def _title(items: Sequence[Method]) -> str:
    datasets = dict.fromkeys(record.dataset for item in items for record in item.records if record.dataset)
    names = [dataset_title(name) for name in datasets]
    what = "Composite federated learning"
    return f"{what} on {', '.join(names)}" if 0 < len(names) <= 3 else what


def _facts(curves: int, records: Sequence[RunRecord]) -> str:
    rounds = max(record.last_round for record in records)
    clients = {record.config.get("num_clients") for record in records}
    known = [count(n, "client") for n in clients if isinstance(n, int)] if len(clients) == 1 else []
    return " · ".join([count(curves, "method"), count(len(records), "run"), *known, f"up to {count(rounds, 'round')}"])


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
    radio = f'<input type="radio" name="axis" value="{key}"{checked} autocomplete="off">'
    return f"<label>{radio}<span>{escape(AXES[key][1])}</span></label>"


def _panel(index: int, title: str, metric: str) -> str:
    log = f'<label class=check><input type="checkbox" id="log-y-{index}" autocomplete="off"> log</label>'
    saves = "".join(
        f'<button type="button" class="save" data-panel="{index}" data-format="{kind}" '
        f'aria-label="Save {escape(title)} as {kind.upper()}">{kind.upper()}</button>'
        for kind in ("png", "svg")
    )
    return (
        f"<figure class=panel><figcaption><span>{escape(title)}</span>{'' if metric == 'accuracy' else log}{saves}"
        f'</figcaption><div class="plot" id="plot-{index}"></div></figure>'
    )


def _target(index: int, group: Group) -> str:
    """The price of a target: the script fills in the numbers."""
    metric = lead_metric(group.items)
    name, unit, _ = METRICS[metric]
    asked = f"{name.lower()} {'of at least' if metric == 'accuracy' else 'of at most'}"
    heads = "".join(f'<th scope=col><button type="button">{head}</button></th>' for head in ("method", *TARGET_HEADS))
    rows = "".join(
        f"<tr data-method={place}><th scope=row>{curve_name(place, item.label)}</th>"
        f"{'<td>–</td>' * len(TARGET_HEADS)}</tr>"
        for item, place in zip(group.items, group.places, strict=True)
    )
    field = f'<input type="number" id="target-{index}" step="any" autocomplete="off">'
    table = f'<table class="sortable" id="prices-{index}"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return (
        f'<p class=ask><label for="target-{index}">To reach a {escape(asked)}</label> {field} {unit}</p>'
        + scrolling(table, "What the target costs")
    )
