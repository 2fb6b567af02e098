"""Records as text, as a table of pandas and as a notebook shows them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedcef.core.amounts import format_bytes
from fedcef.core.extras import needed

if TYPE_CHECKING:
    from pandas import DataFrame

HEAD, TAIL = 3, 7  # rows that a notebook shows
LEADING = ("accuracy", "objective", "density")

Records = Sequence[dict[str, Any]]


def frame(records: Records) -> DataFrame:
    """A pandas table with one row per record; the round is its index."""
    pandas = needed("pandas", "a table", "notebook")
    table: DataFrame = pandas.DataFrame.from_records(records)
    return table.set_index("round")


def text(records: Records) -> str:
    """One line: how far, how good, how many bytes."""
    if not records:
        return "History(nothing recorded)"
    last = records[-1]
    parts = [f"{name} {last[name]:.4g}" for name in LEADING if name in last]
    sent = f"{format_bytes(last['wire_up_bytes'])} up, {format_bytes(last['wire_down_bytes'])} down"
    time = [f"{last['sim_s']:.4g} s of simulated time"] if "sim_s" in last else []
    return f"History(round {last['round']:.0f}: {', '.join([*parts, sent, *time])})"


def html(records: Records) -> str:
    """The line above a table of the first and the last evaluated rounds."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [_row([record.get(name) for name in columns]) for record in records]
    if len(rows) > HEAD + TAIL:
        rows[HEAD:-TAIL] = [f"<tr><td colspan='{len(columns)}' style='text-align:center'>…</td></tr>"]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    return f"<div><code>{escape(text(records))}</code><table><tr>{head}</tr>{''.join(rows)}</table></div>"


def _row(values: list[float | None]) -> str:
    cells = ("" if v is None else f"{v:,.0f}" if float(v).is_integer() and abs(v) > 1 else f"{v:.5g}" for v in values)
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
