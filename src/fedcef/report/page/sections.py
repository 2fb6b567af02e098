"""Parts of the HTML page that are text: tables of results and of settings.

Everything that comes from run folders is untrusted and goes through `escape`.
"""

import re
from collections.abc import Sequence
from html import escape

from fedcef.report.data.groups import Method, flatten
from fedcef.report.data.table import Cell, Results
from fedcef.report.page.markup import count, curve_name, scrolling


def results_table(content: Results, places: Sequence[int]) -> str:
    """The results; `places` says which curve of the legend each row has.  A click on a head sorts."""
    heads = "".join(_head(what, unit) for what, unit in (("method", ""), *content.headers))
    body = ""
    for place, row in zip(places, content.rows, strict=True):
        cells = "".join(_cell(cell) for cell in row.cells)
        body += f"<tr data-method={place}><th scope=row>{curve_name(place, row.label, row.remark)}</th>{cells}</tr>"
    table = f"<table class='results sortable'><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return scrolling(table, "Results")


def _head(what: str, unit: str) -> str:
    below = f"<br><small>{escape(unit)}</small>" if unit else ""
    return f'<th scope=col><button type="button">{escape(what)}{below}</button></th>'


def _cell(cell: Cell) -> str:
    kind = " class=best" if cell.best else " class=warn" if cell.warn else ""
    spread = f"<span class=spread>± {escape(cell.spread)}</span>" if cell.spread else ""
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
            f"<tr><th scope=row>{_breakable(key)}</th>{''.join(_setting(settings.get(key)) for settings in flat)}</tr>"
            for key in differ
        )
        table = (
            f"<table class=settings><thead><tr><th scope=col>what differs</th>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )
        html += scrolling(table, "Settings that differ")
    if same:
        lines = "\n".join(escape(f"{key} = {flat[0][key]}") for key in same)
        summary = f"<summary>The same in all: {count(len(same), 'setting')}</summary>"
        html += f"<details{'' if differ else ' open'}>{summary}<pre>{lines}</pre></details>"
    return html or "<p>The run folders hold no settings.</p>"


def _breakable(key: str) -> str:
    """A dotted name that may be broken between its words."""
    return re.sub(r"([._])", r"\1<wbr>", escape(key))


def _setting(value: str | None) -> str:
    return "<td class=none>–</td>" if value is None else f"<td>{escape(value)}</td>"
