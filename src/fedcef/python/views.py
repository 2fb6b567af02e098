"""A history as text, as a table of pandas and as a notebook shows it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fedcef.python.extras import needed
from fedcef.python.history import History

if TYPE_CHECKING:
    from pandas import DataFrame

HEAD, TAIL = 3, 7  # rows that a notebook shows
LEADING = ("accuracy", "objective", "density")


def frame(history: History) -> DataFrame:
    pandas = needed("pandas", "a table", "notebook")
    table: DataFrame = pandas.DataFrame.from_records(history.records)
    return table.set_index("round")


def text(history: History) -> str:
    """One line: how far, how good, how many bytes."""
    if not history.records:
        return "History(nothing recorded)"
    last = history.last
    parts = [f"{name} {last[name]:.4g}" for name in LEADING if name in last]
    sent = f"{amount(last['wire_up_bytes'])} up, {amount(last['wire_down_bytes'])} down"
    return f"History(round {last['round']:.0f}: {', '.join([*parts, sent])})"


def html(history: History) -> str:
    """The line above a table of the first and the last evaluated rounds."""
    columns = history.measures
    rows = [_row([record.get(name) for name in columns]) for record in history.records]
    if len(rows) > HEAD + TAIL:
        rows[HEAD:-TAIL] = [f"<tr><td colspan='{len(columns)}' style='text-align:center'>…</td></tr>"]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    return f"<div><code>{escape(text(history))}</code><table><tr>{head}</tr>{''.join(rows)}</table></div>"


def amount(count: float) -> str:
    """Bytes in the unit that suits them."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _row(values: list[float | None]) -> str:
    cells = ("" if v is None else f"{v:,.0f}" if float(v).is_integer() and abs(v) > 1 else f"{v:.5g}" for v in values)
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
