"""Parts of the HTML page that are text: tables of results and of settings, and how to run again.

Everything that comes from run folders is untrusted and goes through `escape`.
"""

import shlex
from collections.abc import Sequence
from html import escape

from fedcef.report.methods import Method, flatten
from fedcef.report.records import RunRecord, one_line
from fedcef.report.style import look
from fedcef.report.swatch import swatch
from fedcef.report.table import Cell, Results


def count(number_of: int, what: str) -> str:
    return f"{number_of} {what}" if number_of == 1 else f"{number_of} {what}s"


def results_table(content: Results, places: Sequence[int]) -> str:
    """The results; `places` says which curve of the legend each row has."""
    head = "".join(
        f"<th scope=col>{escape(what)}<br><small>{escape(unit)}</small></th>" for what, unit in content.headers
    )
    body = ""
    for place, row in zip(places, content.rows, strict=True):
        remark = f"<span class=seeds>{escape(row.remark)}</span>" if row.remark else ""
        label = f"<div class=method>{swatch(look(place))}<div>{escape(row.label)}{remark}</div></div>"
        body += f"<tr data-method={place}><th scope=row>{label}</th>{''.join(_cell(cell) for cell in row.cells)}</tr>"
    return f"<table class=results><thead><tr><th scope=col>method</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: Cell) -> str:
    kind = " class=best" if cell.best else " class=warn" if cell.warn else ""
    spread = f" <span class=spread>± {escape(cell.spread)}</span>" if cell.spread else ""
    return f"<td{kind}>{escape(cell.text)}{spread}</td>"


def settings_table(items: Sequence[Method]) -> str:
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
        summary = f"<summary>The same in all: {count(len(same), 'setting')}</summary>"
        html += f"<details{'' if differ else ' open'}>{summary}<pre>{lines}</pre></details>"
    return html or "<p>The run folders hold no settings.</p>"


def _setting(value: str | None) -> str:
    return "<td class=none>–</td>" if value is None else f"<td>{escape(value)}</td>"


def again(record: RunRecord, item: Method) -> str:
    """The settings of a run, folded, with the command that repeats it."""
    command = f"fedcef run {shlex.quote(one_line(record.folder.resolve().name) + '/config.toml')}"
    seed = f" <span class=seeds>seed {record.seed}</span>" if len(item.records) > 1 else ""
    config = f"<pre>{escape(record.config_text)}</pre>" if record.config_text else ""
    summary = f"<summary>{escape(item.label)}{seed}</summary>"
    return f"<details>{summary}<pre class=command>{escape(command)}</pre>{config}</details>"
