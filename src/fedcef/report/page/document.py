"""The report as one HTML file that needs nothing else: no network, no other files.

The page's own content policy forbids every request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedcef.core.errors import RunError
from fedcef.report.data.answer import find_answer
from fedcef.report.data.datasets import group_by_dataset, several_datasets
from fedcef.report.data.groups import (
    CLOCK,
    LINK,
    Group,
    Method,
    axes_of,
    group_runs,
    lead_metric,
    log_x,
    shown_metrics,
)
from fedcef.report.data.link_time import ClientLink
from fedcef.report.data.looks import legend_looks
from fedcef.report.data.names import AXES, METRICS, dataset_title
from fedcef.report.data.records import RunRecord, as_line
from fedcef.report.data.table import collect_results
from fedcef.report.page.clients import render_clients
from fedcef.report.page.curves import collect_data, find_groupings, is_thinned
from fedcef.report.page.layers import render_layers
from fedcef.report.page.render import count, render
from fedcef.report.page.reproduce import render_commands
from fedcef.report.page.settings import render_settings
from fedcef.report.page.traffic import render_traffic

COSTS = ("round", "wire_bytes", "paper_bytes", "wall_s")  # what a target is paid in, beside time on a network
SCRIPTS = ("page.js", "view.js", "curves.js", "hover.js", "legend.js", "save.js", "target.js", "tables.js", "print.js")
MANY = 6  # curves beyond which the legend stands beside the panels, with a filter


@dataclass(frozen=True)
class Lead:
    """A section before all others: its HTML, the data of its script, and that script's file."""

    html: Markup
    data: Mapping[str, Any]
    script: str


def write_page(
    records: Sequence[RunRecord],
    path: Path,
    lead: Lead | None = None,
    link: ClientLink = ClientLink(),
    against: str = "",
) -> None:
    """Writes the interactive report to `path`, which opens with curves against an axis, by default the first."""
    groups, names = _groups(records)
    items = [item for group in groups for item in group.items]
    if against == CLOCK and not any(item.has_clock for item in items):
        raise RunError("None of these runs has simulated time; give them a network, or draw against something else.")
    axes = {axis: axis.endswith("bytes") and log_x(items, axis) for axis in axes_of(items, against)}
    write_groups(groups, names, axes, path, lead, link)


def _groups(records: Sequence[RunRecord]) -> tuple[list[Group], list[str]]:
    """All runs in one group, or one for each data set."""
    if several_datasets(records):
        return group_by_dataset(records, shown_metrics)
    items = group_runs(records)
    group = Group("", tuple(items), tuple(range(len(items))), shown_metrics(items))
    return [group], [item.name for item in items]


def write_groups(
    groups: Sequence[Group],
    names: Sequence[str],
    axes: Mapping[str, bool],
    path: Path,
    lead: Lead | None = None,
    link: ClientLink = ClientLink(),
) -> None:
    """Writes a page with one legend over the panels of all groups; `axes` says which ones are logarithmic."""
    items = [item for group in groups for item in group.items]
    records = [record for item in items for record in item.records]
    panels = [(group.title(metric), metric) for group in groups for metric in group.metrics]

    def each(section: Callable[[Group], Markup]) -> list[tuple[str, Markup]]:
        return [(dataset_title(group.name) if group.name else "", section(group)) for group in groups]

    html = render(
        "page.html",
        title=_title(items),
        facts=_facts(len(names), records),
        answers=[(dataset_title(g.name) if g.name else "", find_answer(g.items)) for g in groups],
        by_accuracy=any(lead_metric(group.items) == "accuracy" for group in groups),
        seeds=any(len(item.records) > 1 for item in items),
        diverged=any(item.diverged for item in items),
        damage=[sentence for record in records for sentence in record.damage],
        lead=lead.html if lead else "",
        results=each(lambda g: render("results.html", content=collect_results(g.items), places=g.places)),
        axes=[(key, AXES[key][1]) for key in axes],
        names=names,
        many=len(names) > MANY,
        groupings=[key for key, _ in find_groupings(groups, len(names))] if len(names) > MANY else [],
        thinned=is_thinned(groups),
        looks=legend_looks(groups),
        link=link if LINK in axes else None,
        first_wide=len(groups) == 1 and len(panels) == 5,
        panels=panels,
        targets=each(
            lambda g: _target(groups.index(g), g, columns=[*COSTS, *(axis for axis in (LINK, CLOCK) if axis in axes)])
        ),
        traffic=each(lambda g: render_traffic(g.items, g.places)),
        clients=each(lambda g: render_clients(g.items)),
        layers=each(lambda g: render_layers(g.items, g.places)),
        settings=each(lambda g: render_settings(g.items)),
        commands=each(lambda g: render_commands(g.items)),
        footer=_versions(records),
        data=collect_data(groups, names, axes, link) | ({"lead": lead.data} if lead else {}),
        css=_file("page.css"),
        plotly=_file("vendor/plotly-basic.min.js"),
        js=Markup().join(_file(name) for name in (*SCRIPTS, *([lead.script] if lead else []))),
    )
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise RunError(f"The report cannot be written to {path}: {error.strerror}.") from error


def _file(name: str) -> Markup:
    """A file of the package, which is put into the page as it is."""
    return Markup(resources.files("fedcef.report.page").joinpath(name).read_text(encoding="utf-8"))


def _title(items: Sequence[Method]) -> str:
    """The experiments by name, or what they are about."""
    experiments = dict.fromkeys(record.experiment for item in items for record in item.records if record.experiment)
    datasets = dict.fromkeys(record.dataset for item in items for record in item.records if record.dataset)
    names = [dataset_title(name) for name in datasets]
    what = ", ".join(experiments) if 0 < len(experiments) <= 3 else "Composite federated learning"
    return f"{what} on {', '.join(names)}" if 0 < len(names) <= 3 else what


def _facts(curves: int, records: Sequence[RunRecord]) -> list[str]:
    rounds = max(record.last_round for record in records)
    clients = {record.config.get("num_clients") for record in records}
    known = [count(n, "client") for n in clients if isinstance(n, int)] if len(clients) == 1 else []
    days = sorted(day for record in records if (day := record.written))
    when = list(dict.fromkeys(f"{day.day} {day:%B %Y}" for day in (days[0], days[-1]))) if days else []
    counts = [count(curves, "method"), count(len(records), "run"), *known, f"up to {count(rounds, 'round')}"]
    return [*([" to ".join(when)] if when else []), *counts]


def _versions(records: Sequence[RunRecord]) -> str:
    found = [record.summary["versions"] for record in records if isinstance(record.summary.get("versions"), dict)]
    sets = dict.fromkeys(", ".join(f"{name} {version}" for name, version in versions.items()) for versions in found)
    return as_line("Made with " + "; ".join(sets)) if sets else "Made with fedcef"


def _target(index: int, group: Group, columns: Sequence[str]) -> Markup:
    metric = lead_metric(group.items)
    name, unit, _ = METRICS[metric]
    at_least = metric == "accuracy"
    heads = [AXES[column][1].lower() for column in columns]
    return render("target.html", index=index, group=group, name=name, unit=unit, at_least=at_least, heads=heads)
