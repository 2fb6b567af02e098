"""One picture of runs for the terminal: a single run in full, several as a table.

Text from run folders is untrusted: it is shown as one printable line, and no markup is read from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedcef.core.amounts import format_bytes
from fedcef.report.data.fitted import Fitted
from fedcef.report.data.records import as_line
from fedcef.watch.attended import attended, is_deployment
from fedcef.watch.follow import SILENT_S, Followed
from fedcef.watch.words import draw_sparkline, format_duration, format_measure

MEASURES = ("accuracy", "test_loss", "train_loss", "objective", "gap", "stationarity", "density")
BEST: dict[str, Callable[[list[float]], float]] = {
    "accuracy": max, "test_loss": min, "train_loss": min, "objective": min, "gap": min
}  # fmt: skip
COLORS = {"waiting": "dim", "running": "cyan", "stopped": "yellow", "finished": "green", "diverged": "red"}
CURVE = 24  # characters of a sparkline
MOST = 2  # measures of several runs, where there is room
NOTES = 3  # the last ones are shown
AWAY = 8  # clients that are named
SILENT_ROUNDS = 5.0  # a run is called silent after the time of so many rounds


def draw_screen(runs: Sequence[Followed]) -> RenderableType:
    """What there is to see of the runs now."""
    return _one(runs[0]) if len(runs) == 1 else _several(runs)


def _one(run: Followed) -> RenderableType:
    title = Text.assemble((as_line(run.label), "bold"), "  ", (run.status, COLORS[run.status]))
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column()
    rows.add_row("round", _bar(run), Text(f"{run.round} of {run.rounds}{_speed(run)}"))
    for name, values in _measured([run]).items():
        best = f"   best {format_measure(name, BEST[name](values))}" if name in BEST else ""
        rows.add_row(
            name.replace("_", " "),
            Text(draw_sparkline(values, CURVE), "cyan"),
            Text(format_measure(name, values[-1]) + best),
        )
    rows.add_row("bytes", _traffic(run, "wire"), Text(_budget(run)))
    if (clock := run.last("sim_s")) is not None:
        arrived = f"last round: {run.last('arrivals') or 0:.0f} arrived"
        rows.add_row("simulated time", Text(format_duration(clock)), Text(arrived))
    if run.last("transport_up_bytes") is not None:
        replies = f"last round: {run.last('accepted') or 0:.0f} accepted, {run.last('refused') or 0:.0f} refused"
        rows.add_row("on the network", _traffic(run, "transport"), Text(replies))
    if is_deployment(run) and (
        away := [f"{one.client} ({one.state})" for one in attended(run) if one.state != "there"]
    ):
        rows.add_row(
            "clients", Text(f"{len(away)} not there"), Text(", ".join(away[:AWAY]) + (", …" if away[AWAY:] else ""))
        )
    notes = (Text(as_line(note), "yellow") for note in run.notes[-NOTES:])
    return Group(title, rows, *notes, *_silence(run))


def _several(runs: Sequence[Followed]) -> RenderableType:
    """A table with a row per run; a narrow terminal gets fewer columns, and no name is broken over lines."""
    measured = list(_measured(runs))[:MOST]
    labels = Counter(run.label for run in runs)
    seeds = Counter((run.label, run.config.get("seed")) for run in runs)

    def make(without: Collection[str]) -> Table:
        shown = [name for name in measured if name not in without]
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("run")
        table.add_column("", no_wrap=True)
        heads = [head for head in ("up", "down", "rounds/s", "left") if head not in without]
        for head in ("round", *(name.replace("_", " ") for name in shown), *heads):
            table.add_column(head, justify="right", no_wrap=True)
        for run in runs:
            seed = f", seed={run.config.get('seed')}" if labels[run.label] > 1 else ""
            if seeds[run.label, run.config.get("seed")] > 1:
                seed += f" [{run.path.resolve().name}]"
            cells = {way: format_bytes(run.last(f"wire_{way}_bytes") or 0) for way in ("up", "down")}
            cells["rounds/s"] = f"{run.pace:.3g}" if run.pace else ""
            cells["left"] = format_duration(run.left_s) if run.left_s is not None else ""
            table.add_row(
                Text(as_line(run.label + seed)),
                Text(run.status, COLORS[run.status]),
                f"{run.round}/{run.rounds}",
                *(_curve_and_value(run, name) for name in shown),
                *(cells[head] for head in heads),
            )
        return table

    ended = Text(f"{sum(run.over for run in runs)} of {len(runs)} ended", "dim")
    table = Fitted(make, [*measured[:0:-1], "rounds/s", "up", "down"], names_them=False)
    return Group(table, ended, *(line for run in runs for line in _silence(run)))


def _measured(runs: Sequence[Followed]) -> dict[str, list[float]]:
    """What the runs measure, with the values of the first that does."""
    return {name: values for name in MEASURES if (values := next(filter(None, (r.column(name) for r in runs)), []))}


def _curve_and_value(run: Followed, name: str) -> Text:
    values = run.column(name)
    if not values:
        return Text()
    return Text.assemble((draw_sparkline(values, CURVE // 3), "cyan"), " ", format_measure(name, values[-1]))


def _bar(run: Followed) -> ProgressBar:
    return ProgressBar(run.rounds, run.round, width=CURVE, complete_style="cyan", finished_style="green")


def _speed(run: Followed) -> str:
    pace = f"   {run.pace:.3g} rounds/s" if run.pace else ""
    left = f"   {format_duration(run.left_s)} left" if run.left_s is not None else ""
    taken = f"   took {format_duration(run.last('wall_s') or 0)}" if run.over else ""
    return pace + left + taken


def _traffic(run: Followed, count: str) -> Text:
    up, down = (format_bytes(run.last(f"{count}_{way}_bytes") or 0) for way in ("up", "down"))
    return Text(f"{up} up   {down} down")


def _budget(run: Followed) -> str:
    """How much of a budget is spent."""
    budget = run.config.get("budget")
    if not isinstance(budget, int) or budget <= 0:
        return ""
    spent = sum(run.last(f"wire_{way}_bytes") or 0 for way in ("up", "down"))
    return f"{100 * spent / budget:.0f}% of the budget, {format_bytes(budget)}"


def _silence(run: Followed) -> Iterator[Text]:
    """Say how long nothing came, and whether anybody still works on it."""
    patience = max(SILENT_S, SILENT_ROUNDS / run.pace if run.pace else 0.0)
    silence = run.silence
    if run.status == "stopped":
        ago = format_duration(silence)
        yield Text(f"{as_line(run.label)}: no process works on it; its last round was {ago} ago.", "yellow")
    elif not run.over and silence > patience:
        yield Text(f"{as_line(run.label)}: no new round for {format_duration(silence)}.", "yellow")
