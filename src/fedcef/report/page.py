"""The report as one HTML file that needs nothing else: no network, no other files.

Everything that comes from run folders is untrusted text. It enters the page through `escape`, or as JSON without `<`;
the page's own content policy forbids every request.
"""

import json
import math
import re
import shlex
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedcef.errors import RunError
from fedcef.report.methods import (
    X_AXES,
    Curve,
    Method,
    flatten,
    lead_metric,
    log_x,
    log_y,
    methods,
    second_metric,
    span,
)
from fedcef.report.records import Column, RunRecord, number, one_line
from fedcef.report.style import AXES, METRICS, extra, look, metric_title
from fedcef.report.swatch import swatch
from fedcef.report.table import Cell, Results, results

MOST_POINTS = 1200  # of a curve; more than a screen can show
LINE_WIDTH = 2.2  # of page.js, for the dashes


def page(records: Sequence[RunRecord], path: Path) -> None:
    """Writes the interactive report to `path`."""
    plotly = extra("plotly.offline").get_plotlyjs()
    items = methods(records)
    keys = [key for key in _panel_keys(items) if any(item.curve(key) for item in items)]
    html = _fill(
        _file("page.html"),
        title=escape(_title(items)),
        facts=_facts(items, records),
        help=_help(items),
        css=_file("page.css"),
        results=_results(results(items)),
        axes="".join(_axis_switch(i, key) for i, key in enumerate(X_AXES)),
        legend="".join(
            f'<button type="button" aria-pressed="true">{swatch(look(i))}{escape(item.name)}</button>'
            for i, item in enumerate(items)
        ),
        panels="".join(_panel(p, key) for p, key in enumerate(keys)),
        settings=_settings(items),
        again="".join(_again(record, item) for item in items for record in item.records),
        footer=escape(_versions(records)),
        data=_json(_data(items, keys)),
        plotly=plotly,
        js=_file("page.js"),
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


def _panel_keys(items: Sequence[Method]) -> list[str]:
    return [lead_metric(items), second_metric(items), "stationarity", "density"]


def _title(items: Sequence[Method]) -> str:
    names = dict.fromkeys(record.dataset for item in items for record in item.records if record.dataset)
    what = "Composite federated learning"
    return f"{what} on {', '.join(names)}" if 0 < len(names) <= 3 else what


def _count(number_of: int, what: str) -> str:
    return f"{number_of} {what}" if number_of == 1 else f"{number_of} {what}s"


def _facts(items: Sequence[Method], records: Sequence[RunRecord]) -> str:
    rounds = max(record.last_round for record in records)
    return " · ".join([_count(len(items), "method"), _count(len(records), "run"), f"up to {_count(rounds, 'round')}"])


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


def _results(content: Results) -> str:
    head = "".join(
        f"<th scope=col>{escape(what)}<br><small>{escape(unit)}</small></th>" for what, unit in content.headers
    )
    body = ""
    for i, row in enumerate(content.rows):
        remark = f"<span class=seeds>{escape(row.remark)}</span>" if row.remark else ""
        label = f"<div class=method>{swatch(look(i))}<div>{escape(row.label)}{remark}</div></div>"
        body += f"<tr><th scope=row>{label}</th>{''.join(_cell(cell) for cell in row.cells)}</tr>"
    return (
        f"<table id=results-table><thead><tr><th scope=col>method</th>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(cell: Cell) -> str:
    kind = " class=best" if cell.best else " class=warn" if cell.warn else ""
    spread = f" <span class=spread>± {escape(cell.spread)}</span>" if cell.spread else ""
    return f"<td{kind}>{escape(cell.text)}{spread}</td>"


def _axis_switch(index: int, key: str) -> str:
    checked = " checked" if index == 0 else ""
    radio = f'<input type="radio" name="axis"{checked} autocomplete="off">'
    return f"<label>{radio}<span>{escape(AXES[key][1])}</span></label>"


def _panel(index: int, key: str) -> str:
    log = f'<label class=check><input type="checkbox" id="log-y-{index}" autocomplete="off"> log scale</label>'
    return (
        f"<figure class=panel><figcaption><span>{escape(metric_title(key))}</span>{'' if key == 'accuracy' else log}"
        f'<button type="button" class="save" id="save-{index}">Save PNG</button></figcaption>'
        f'<div class="plot" id="plot-{index}"></div></figure>'
    )


def _settings(items: Sequence[Method]) -> str:
    """What differs between the methods as a table, what they share below it."""
    flat = [flatten(item.records[0].config) for item in items]
    seeds = [", ".join(str(record.seed) for record in item.records) for item in items]
    flat = [
        {**settings, **({"seed": s} if "seed" in settings else {})} for settings, s in zip(flat, seeds, strict=True)
    ]
    keys = [key for key in dict.fromkeys(key for settings in flat for key in settings) if key not in ("label", "name")]
    differ = [key for key in keys if len({settings.get(key) for settings in flat}) > 1]
    same = [key for key in keys if key not in differ]
    html = ""
    if differ:
        head = "".join(f"<th scope=col>{escape(item.label)}</th>" for item in items)
        rows = "".join(
            f"<tr><th scope=row>{escape(key)}</th>{''.join(_setting(settings.get(key)) for settings in flat)}</tr>"
            for key in differ
        )
        html += (
            '<div class="scroll" tabindex="0" role="group" aria-label="Settings that differ, may scroll sideways">'
            f"<table class=settings><thead><tr><th scope=col>what differs</th>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )
    if same:
        lines = "\n".join(escape(f"{key} = {flat[0][key]}") for key in same)
        summary = f"<summary>The same in all: {_count(len(same), 'setting')}</summary>"
        html += f"<details{'' if differ else ' open'}>{summary}<pre>{lines}</pre></details>"
    return html or "<p>The run folders hold no settings.</p>"


def _setting(value: str | None) -> str:
    return "<td class=none>–</td>" if value is None else f"<td>{escape(value)}</td>"


def _again(record: RunRecord, item: Method) -> str:
    command = f"fedcef run {shlex.quote(one_line(record.folder.resolve().name) + '/config.toml')}"
    seed = f" <span class=seeds>seed {record.seed}</span>" if len(item.records) > 1 else ""
    config = f"<pre>{escape(record.config_text)}</pre>" if record.config_text else ""
    summary = f"<summary>{escape(item.label)}{seed}</summary>"
    return f"<details>{summary}<pre class=command>{escape(command)}</pre>{config}</details>"


def _data(items: Sequence[Method], keys: Sequence[str]) -> dict[str, Any]:
    shown = []
    for i, item in enumerate(items):
        style = look(i)
        curves = {key: _curve(curve, METRICS[key][2]) for key in keys if (curve := item.curve(key))}
        dash = ",".join(f"{LINE_WIDTH * part:g}px" for part in style.dash) or "solid"
        # plotly reads names as a subset of HTML, so they are escaped here as everywhere
        shown.append(
            {
                "name": escape(item.name),
                "color": style.color,
                "dark": style.dark,
                "dash": dash,
                "symbol": style.symbol,
                "diverged": item.diverged > 0,
                "curves": curves,
            }
        )
    axes = [
        {
            "key": key,
            "title": AXES[key][0],
            "bytes": key.endswith("bytes"),
            "unit": "s" if key == "wall_s" else "",
            "log": key.endswith("bytes") and log_x(items, key),
        }
        for key in X_AXES
    ]
    panels = [
        {
            "key": key,
            "title": metric_title(key),
            "unit": METRICS[key][1],
            "log": log_y(items, key),
            "span": [METRICS[key][2] * value for value in span(items, key) or (0.0, 1.0)],
            "fixed": any(item.diverged for item in items),  # else the page fits the axis to the curves shown
        }
        for key in keys
    ]
    return {"methods": shown, "axes": axes, "panels": panels}


def _curve(curve: Curve, factor: float) -> dict[str, list[float | None]]:
    step = np.unique(np.linspace(0, curve.mean.size - 1, min(curve.mean.size, MOST_POINTS)).round().astype(int))
    columns = {key: x[step] for key, x in curve.x.items()}
    columns |= {"y": factor * curve.mean[step], "low": factor * curve.low[step], "high": factor * curve.high[step]}
    return {key: _values(column) for key, column in columns.items()}


def _values(column: Column) -> list[float | None]:
    """Six digits: more would only make the file larger."""
    return [float(f"{value:.6g}") if math.isfinite(number(value)) else None for value in column.tolist()]
