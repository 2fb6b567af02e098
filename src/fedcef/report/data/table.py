"""The results table: its cells as text, for the terminal and for the page."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedcef.report.data.datasets import NO_NAME, several_datasets
from fedcef.report.data.fitted import Fitted
from fedcef.report.data.groups import CLOCK, Method, group_runs, lead_metric, second_metric
from fedcef.report.data.names import dataset_title
from fedcef.report.data.noise import within_noise
from fedcef.report.data.records import Column, RunRecord
from fedcef.report.data.units import axis_unit, format_number

BYTES = ("wire_up_bytes", "wire_down_bytes", "wire_bytes", "paper_bytes")
CATCH_UP = "wire_catch_up_bytes"
DISPENSABLE = ("paper total", "wall", "second", "density", "catch-up", "wire up", "wire down", "sim time", "rounds")
"""The columns that a narrow terminal does without, the first to go first; "second" is the second measure."""


@dataclass(frozen=True)
class Cell:
    """One number of the table, as text."""

    text: str
    spread: str = ""  # standard deviation over the seeds
    best: bool = False
    tie: bool = False  # not the best, but the spread over the seeds cannot tell
    warn: bool = False


@dataclass(frozen=True)
class Row:
    """One method."""

    label: str
    remark: str  # "3 seeds, unfinished"
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Results:
    """The whole table."""

    headers: tuple[tuple[str, str], ...]  # (what, unit) of each cell
    rows: tuple[Row, ...]


def collect_results(items: Sequence[Method]) -> Results:
    """The last value of every method: mean, and standard deviation where there are seeds."""
    lead, second = lead_metric(items), second_metric(items)
    totals = [float(np.nanmax([item.last(name) for name in BYTES])) for item in items if _counted(item)]
    size, unit = axis_unit(min(totals, default=0.0), max(totals, default=0.0), log=True)
    scores = [-math.inf if item.diverged else _score(item, lead) for item in items]
    best = max(scores) if len(items) > 1 else math.nan  # of one method nothing is best
    leaders = [item for item, score in zip(items, scores, strict=True) if score == best and math.isfinite(best)]
    least = {name: _least(items, name) for name in ("wire_bytes", "paper_bytes")}
    columns = [("wire up", "wire_up_bytes"), ("wire down", "wire_down_bytes"), ("wire total", "wire_bytes")]
    if any(item.last(CATCH_UP).max() > 0 for item in items):  # where clients were away
        columns.insert(2, ("catch-up", CATCH_UP))
    columns.append(("paper total", "paper_bytes"))
    # on a simulated network what counts is its time, not how long it took to compute here
    time = CLOCK if any(item.has_clock for item in items) else "wall_s"
    rows = []
    for item, score in zip(items, scores, strict=True):
        result = _metric(item, lead, best=item in leaders)
        tie = math.isfinite(score) and not result.best and any(_tied(item, other, lead) for other in leaders)
        cells = [_rounds(item), replace(result, tie=tie)]
        cells += [_metric(item, name) for name in (second, "density")]
        for _, name in columns:
            cells.append(_cell(item.last(name) / size, format_number, best=_total(item, name) == least.get(name)))
        rows.append(Row(item.label, _remark(item), (*cells, _cell(item.last(time), format_number))))
    headers = (
        ("rounds", ""),
        (lead, "%" if lead == "accuracy" else ""),
        (second.replace("_", " "), ""),
        ("density", "%"),
        *((title, unit) for title, _ in columns),
        ("sim time" if time == CLOCK else "wall", "s"),
    )
    return Results(headers, tuple(rows))


def make_table(records: Sequence[RunRecord]) -> RenderableType:
    """The results for a terminal of 100 columns, or 80 for most.

    The best accuracy (or objective) and the fewest bytes are bold; ≈ marks what the seeds cannot tell from the best.
    Runs on several data sets get a table for each.  Below a table stands what of its run folders could not be read.
    """
    if not several_datasets(records):
        return _table(records)
    by_dataset: dict[str, list[RunRecord]] = {}
    for record in records:
        by_dataset.setdefault(record.dataset, []).append(record)
    return Group(*(_table(some, dataset_title(name) or NO_NAME) for name, some in sorted(by_dataset.items())))


def _table(records: Sequence[RunRecord], title: str = "") -> RenderableType:
    content = collect_results(group_runs(records))
    damage = Text("\n".join(sentence for record in records for sentence in record.damage), style="yellow")

    def make(without: Collection[str]) -> Table:
        view = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, caption=damage if damage else None)
        view.caption_justify = view.title_justify = "left"
        view.title = Text(title, style="bold") if title else None
        view.add_column("method", overflow="fold", min_width=8, max_width=30)
        shown = [i for i, (what, _) in enumerate(content.headers) if what not in without]
        for what, unit in (content.headers[i] for i in shown):
            view.add_column("\n".join([*what.replace("-", " ").split(), *unit.split()]), justify="right", no_wrap=True)
        for row in content.rows:
            label = Text(row.label)
            if row.remark:
                label.append(f"\n{row.remark}", style="dim")
            view.add_row(label, *(_rich(row.cells[i]) for i in shown))
        return view

    there = [what for what, _ in content.headers]
    return Fitted(make, [what for name in DISPENSABLE if (what := there[2] if name == "second" else name) in there])


def _least(items: Sequence[Method], name: str) -> float | None:
    """The fewest bytes that a finished method sent, where there is something to choose from."""
    totals = [total for item in items if not item.note and (total := _total(item, name)) > 0]
    return min(totals) if len(totals) > 1 else None


def _total(item: Method, name: str) -> float:
    return math.nan if item.note else float(item.last(name).mean())


def _tied(item: Method, other: Method, lead: str) -> bool:
    return within_noise(item.last(lead), other.last(lead))


def _rich(cell: Cell) -> Text:
    text = Text(("≈" if cell.tie else "") + cell.text, style="bold" if cell.best else "red" if cell.warn else "")
    if cell.spread:
        text.append(f"\n±{cell.spread}", style="not bold dim")
    return text


def _remark(item: Method) -> str:
    seeds = [f"{len(item.records)} seeds"] if len(item.records) > 1 else []
    return ", ".join(seeds + (["unfinished"] if item.note == "unfinished" else []))


def _counted(item: Method) -> bool:
    return bool(np.isfinite([item.last(name) for name in BYTES]).any())


def _score(item: Method, lead: str) -> float:
    """The mean as the table shows it, greater is better; ties in the table are ties."""
    value = float(item.last(lead).mean())
    if not math.isfinite(value):
        return -math.inf
    return round(100 * value, 2) if lead == "accuracy" else -float(_plain(value))


def _rounds(item: Method) -> Cell:
    done, planned = [r.last_round for r in item.records], max(r.planned_rounds for r in item.records)
    low, high = min(done), max(done)
    text = str(low) if low == high else f"{low}–{high}"
    short = low < planned and item.note != ""
    return Cell(f"{text}/{planned}" if short else text)


def _metric(item: Method, name: str, best: bool = False) -> Cell:
    """A metric's cell; a mean over the seeds that survived would flatter, so a method that diverged has none."""
    if item.diverged:
        lead = name in ("gap", "accuracy", "objective")
        n = len(item.records)
        return Cell("–" if not lead else "diverged" if item.diverged == n else f"{item.diverged}/{n} div.", warn=lead)
    if name in ("accuracy", "density"):
        return _cell(100 * item.last(name), lambda value: f"{value:.2f}", best)
    return _cell(item.last(name), _plain, best)


def _plain(value: float) -> str:
    return f"{value:.4f}" if value == 0 or 1e-2 <= abs(value) < 1e4 else f"{value:.2e}"


def _cell(values: Column, show: Callable[[float], str], best: bool = False) -> Cell:
    mean = float(values.mean())
    if not math.isfinite(mean):
        return Cell("–")
    text = show(mean)
    deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0
    spread = f"{deviation:.1e}" if "e" in text else f"{deviation:.{len(text.partition('.')[2])}f}"
    # a deviation that the mean's digits cannot show (equal byte counts) is left out
    return Cell(text, spread if float(spread) else "", best)
