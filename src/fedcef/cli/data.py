"""fedcef data: data sets in the cache folder, and what each client holds of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from fedcef.cli.shared_options import Changes
from fedcef.cli.terminal import console, tell

if TYPE_CHECKING:
    from fedcef.problems.catalog import Classification
    from fedcef.problems.holdings import Holdings
    from fedcef.runs.settings import Settings

TABLE_CLIENTS, TABLE_CLASSES = 20, 10


def register(app: typer.Typer) -> None:
    """Add the group of commands to the app."""
    group = typer.Typer(help="Download data sets; show what each client holds.", no_args_is_help=True)
    group.command()(get)
    group.command()(show)
    app.add_typer(group, name="data")


def get(name: Annotated[str, typer.Argument(help="Its name, as `fedcef list` shows it.")]) -> None:
    """Download a data set into the cache folder.

    The folder is FEDCEF_DATA, by default the user's cache.  Files are verified by their SHA-256.
    """
    from fedcef.problems.data.sources import fetch

    fetch(name, log=tell)


def show(
    target: Annotated[
        str, typer.Argument(metavar="NAME_OR_EXPERIMENT", help="A data set, a shipped experiment, or a .toml file.")
    ],
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also draw it, to a .png, .svg or .pdf file.")
    ] = None,
) -> None:
    """Show what each client holds: how sizes and labels differ.

    The samples are divided as in a run with these settings, e.g. --set data.partition=zipf --set num_clients=100.
    """
    from fedcef.report.figures.holdings import draw_holdings

    settings = _settings(target, set_ or [])
    holdings, way = _look(settings)
    _show_all(settings, holdings, way)
    _show_quantiles(holdings)
    _show_counts(holdings)
    _show_meaning(holdings)
    if out is not None:
        draw_holdings(holdings, out)
        tell(f"Wrote {out}")


def _settings(target: str, changes: Iterable[str]) -> Settings:
    """The settings of an experiment, or the default ones with this data set."""
    from fedcef.core.parts import is_path
    from fedcef.problems.catalog import DATA
    from fedcef.runs.experiments import load_settings, parse_change
    from fedcef.runs.settings import Settings, changed

    if target not in DATA and not is_path(target):
        return load_settings(target, changes)
    return Settings(**changed({"data": {"name": target}}, dict(parse_change(change) for change in changes)))


def _look(settings: Settings) -> tuple[Holdings, str]:
    """What clients hold, where a data set is dealt without building the problem; and how they came to it."""
    from fedcef.core.parts import is_path, make
    from fedcef.problems.catalog import DATA, DRAWN, Classification
    from fedcef.problems.counting import count_holdings
    from fedcef.problems.data.datasets import load
    from fedcef.problems.holdings import Holdings
    from fedcef.runs.settings import IN_PYTHON

    name = settings.data["name"]
    source = None if is_path(name) or name == IN_PYTHON else make("data", DATA, settings.data)
    way = _way(source) if isinstance(source, Classification) else ""
    if not isinstance(source, Classification) or source.partition == DRAWN:
        problem = settings.model_copy(update={"device": "cpu"}).build_problem()
        return count_holdings(problem, most_classes=1000), way
    data = load(name)
    dealt = source.deal(data.train_targets, settings.num_clients, settings.seed)
    counts = dealt.histogram(data.train_targets, data.num_classes).numpy()
    return Holdings(dealt.sizes.numpy(), tuple(range(data.num_classes)), counts), way


def _way(source: Classification) -> str:
    """The partition and its options."""
    options = dict(source.options())
    if options.get("labels") == "iid":
        options.pop("alpha", None)
    named = ", ".join(f"{key} {value}" for key, value in options.items())
    return f"{source.partition}{': ' if named else ''}{named}; "


def _show_all(settings: Settings, holdings: Holdings, way: str) -> None:
    """How many clients and samples there are, and how they are dealt."""
    named = f"{settings.data['name']}: {holdings.num_clients:,} clients"
    some = f"{holdings.total:,} samples" + (f" of {len(holdings.classes)} classes" if holdings.classes else "")
    tell(named if holdings.population else f"{named}, {some}")
    if holdings.population:
        tell(f"{len(holdings.sizes):,} of them, drawn at random, have {some}")
    tell(f"{way}seed {settings.seed}")


def _show_quantiles(holdings: Holdings) -> None:
    """What clients have, by quantiles."""
    from fedcef.problems.holdings import LEVELS
    from fedcef.report.data.measures import format_measure

    found = holdings.summary()
    table = _table("each client", [*LEVELS, "mean"])
    for name, values in found.quantiles.items():
        table.add_row(name, *(format_measure(name, value) for value in (*values, found.means[name])))
    console.print(table)


def _show_counts(holdings: Holdings) -> None:
    """Samples of each class by client, if a terminal of 80 columns has room for them."""
    if holdings.counts is None or holdings.counts.max() >= 10_000:
        return
    if len(holdings.sizes) > TABLE_CLIENTS or len(holdings.classes) > TABLE_CLASSES:
        return
    table = _table("client", [str(name) for name in holdings.classes] + ["samples", "distance"], gap=0)
    rows = zip(holdings.counts.tolist(), holdings.sizes.tolist(), holdings.distances.tolist(), strict=True)
    for client, (counts, size, distance) in enumerate(rows):
        table.add_row(str(client), *(str(count or "·") for count in counts), str(size), f"{distance:.2f}")
    console.print(table)


def _show_meaning(holdings: Holdings) -> None:
    """How unequal sizes are, and what the other measures are."""
    most = sorted(holdings.sizes.tolist())[-max(1, len(holdings.sizes) // 10) :]
    tenth = sum(most) / max(1, holdings.total)
    tell(f"sizes: Gini {holdings.gini:.2f}; the largest tenth of the clients has {100 * tenth:.0f}% of the samples")
    if holdings.counts is not None:
        tell("distance: total variation between a client's labels and all labels; 0 to 1")
        tell("divergence: Kullback–Leibler divergence of the same, in nats")
    elif holdings.mean_targets is not None:
        tell("Targets are numbers: there are no classes; clients differ in their mean.")
    else:
        tell("Labels are not compared: a sample has several, or there are too many classes.")


def _table(first: str, others: Sequence[str], gap: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False)
    table.add_column(first)
    for title in others:
        table.add_column(title, justify="right")
    return table
