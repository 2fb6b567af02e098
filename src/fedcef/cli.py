"""The command line: run, compare, plot, list, data."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from inspect import getdoc
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import fedcef
from fedcef.algorithms import ALGORITHMS
from fedcef.compressors import COMPRESSORS
from fedcef.errors import ConfigError, DivergedError, FedcefError
from fedcef.problems.catalog import DATA
from fedcef.problems.datasets import DATASETS
from fedcef.problems.models import MODELS
from fedcef.problems.partitions import PARTITIONS
from fedcef.regularizers import REGULARIZERS
from fedcef.runs.config import Config, experiments, load_config
from fedcef.runs.folder import Record, RunFolder
from fedcef.runs.run import Watcher, next_folder
from fedcef.runs.run import run as run_to_the_end

app = typer.Typer(
    help="Composite federated learning over a narrow network.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Bring data sets into the cache folder.", no_args_is_help=True)
app.add_typer(data_app, name="data")
console = Console(width=None if sys.stdout.isatty() else 110)
errors = Console(stderr=True)

Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. compressor.ratio=0.01.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The folder to write to; by default a new one below runs/.")]


@app.command()
def run(
    experiment: Annotated[str | None, typer.Argument(help="A shipped experiment's name, or a .toml file.")] = None,
    set_: Changes = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with the run in this folder.")] = None,
) -> None:
    """Train once and write a run folder."""
    if (experiment is None) == (resume is None):
        raise ConfigError("Give an experiment to run, or --resume with the folder of a run to go on with.")
    if resume is not None:
        if set_ or out:
            raise ConfigError("--resume goes on with a run as it was set; leave --set and --out away.")
        folder = RunFolder.open(resume)
        config = load_config(str(folder.config))
    else:
        config = load_config(str(experiment), set_ or [])
        folder = RunFolder.new(out or next_folder(Path("runs"), config.name))
    _train(config, folder, resume=resume is not None)
    console.print(_table([folder.path]))
    console.print(f"Run folder: {folder.path}", markup=False, soft_wrap=True)


@app.command()
def compare(
    experiment: Annotated[str, typer.Argument(help="An experiment with [[compare]] entries.")],
    set_: Changes = None,
    out: Out = None,
) -> None:
    """Run all variants of an experiment, then write a table, a figure and an HTML page.

    Variants whose run in --out is already finished are kept; an interrupted one is resumed.
    """
    config = load_config(experiment, set_ or [])
    out = out or next_folder(Path("runs"), config.name)
    folders = []
    for variant in config.variants():
        folder, unfinished = _folder_for(variant, out)
        folders.append(folder.path)
        try:
            if unfinished:
                _train(variant, folder, resume=folder.config.exists())
        except DivergedError as error:
            _say(f"{variant.label}: {error}", "yellow")
    _report(folders, out)


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold run folders.")],
    out: Out = None,
    against_density: Annotated[
        bool, typer.Option("--tradeoff", help="Also draw accuracy against density, one line per regulariser.")
    ] = False,
) -> None:
    """Draw the table, the figure and the HTML page of finished runs."""
    folders = [folder for path in runs for folder in _runs_in(path)]
    out = out or (runs[0] if len(runs) == 1 else Path("report"))
    _report(folders, out)
    if against_density:
        from fedcef.report import load_runs, tradeoff

        tradeoff(load_runs(folders), out / "tradeoff.png")
        console.print(f"Wrote {out / 'tradeoff.png'}", markup=False, soft_wrap=True)


@app.command(name="list")
def list_() -> None:
    """Show what there is: algorithms, compressors, regularisers, data sets, models, partitions, experiments."""
    described = {
        "algorithm.name": {name: _line(kind) for name, kind in ALGORITHMS.items()},
        "compressor.name": {name: _line(kind) for name, kind in COMPRESSORS.items()},
        "regularizer.name": {name: _line(kind) for name, kind in REGULARIZERS.items()},
        "data.name": {name: _line(kind) for name, kind in DATA.items()}
        | {name: info.description for name, info in DATASETS.items()},
        "data.partition": {name: _line(kind) for name, kind in PARTITIONS.items()},
        "model.name": {name: _line(kind) for name, kind in MODELS.items()},
        "experiment": experiments(),
    }
    for title, entries in described.items():
        table = Table(
            title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2)
        )
        for name, line in entries.items():
            table.add_row(name, line)
        console.print(table)
        console.print()


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")]) -> None:
    """Bring a data set into the cache folder (FEDCEF_DATA, by default the user's cache), verified by SHA-256."""
    from fedcef.problems.sources import fetch

    fetch(name, log=lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True))


@app.command()
def version() -> None:
    """Show the version."""
    console.print(fedcef.__version__)


def main() -> None:
    """Run the command line; a mistake of the user's is one sentence and an exit code, never a traceback."""
    try:
        app(standalone_mode=True)
    except FedcefError as error:
        _say(f"Error: {error}", "red")
        sys.exit(error.exit_code)


def _say(sentence: str, style: str = "") -> None:
    """A plain sentence on standard error: no markup is read from it, no line is broken in it."""
    errors.print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


def _train(config: Config, folder: RunFolder, resume: bool) -> None:
    label = config.label or config.name
    try:
        with _progress(label, config.rounds) as watch:
            run_to_the_end(config, folder, resume=resume, watch=watch)
    except KeyboardInterrupt:
        _say(f"Interrupted.  Go on with: fedcef run --resume {folder.path}")
        sys.exit(130)


@contextmanager
def _progress(label: str, rounds: int) -> Iterator[Watcher]:
    """A bar with round, accuracy, bytes and time left on a terminal; elsewhere nothing but notes."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measure]}"),
        TextColumn("{task.fields[sent]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=rounds, measure="", sent="")

        def watch(record: Record) -> None:
            if "note" in record:
                _say(record["note"], "yellow")
                return
            if "accuracy" in record:
                bar.update(task, measure=f"accuracy {100 * record['accuracy']:.1f}%")
            elif "objective" in record:
                bar.update(task, measure=f"objective {record['objective']:.4g}")
            sent = record["wire_up_bytes"] + record["wire_down_bytes"]
            bar.update(task, completed=record["round"], sent=f"{sent / 1e6:.1f} MB")

        yield watch


def _folder_for(variant: Config, out: Path) -> tuple[RunFolder, bool]:
    """A variant's folder below `out`, and whether there is work left in it."""
    path = out / "".join(c if c.isalnum() or c in ".=-" else "_" for c in variant.label.lower())
    folder = RunFolder(path)
    if not folder.config.exists():
        return folder, True
    if folder.config.read_text("utf-8") != variant.to_toml():
        raise ConfigError(f"{path} holds a run with other settings; choose another --out.")
    return folder, not folder.summary.exists()


def _runs_in(path: Path) -> list[Path]:
    return [path] if (path / "config.toml").exists() else sorted(p.parent for p in path.glob("*/config.toml"))


def _report(folders: Iterable[Path], out: Path) -> None:
    from fedcef.report import write_report

    folders = list(folders)
    if not folders:
        raise ConfigError("There are no runs to plot; give folders that `fedcef run` or `fedcef compare` wrote.")
    console.print(_table(folders))
    for path in write_report(folders, out):
        console.print(f"Wrote {path}", markup=False, soft_wrap=True)


def _table(folders: list[Path]) -> Table:
    from fedcef.report import load_runs, table

    return table(load_runs(folders))


def _line(thing: object) -> str:
    return (getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    main()
