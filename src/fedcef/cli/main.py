"""The command line: run, compare, sweep, frontier, plot, list, data, and those of `commands`.

What a command needs is imported when it runs: `fedcef --help` and Tab do not wait for torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from errno import EACCES, EDQUOT, EIO, ENOSPC, EROFS
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from typer.models import OptionInfo

import fedcef
from fedcef.cli import completion, doctor, export, report, theory, watch
from fedcef.cli.terminal import console, progress, say, show_frontier, show_paper, show_report, show_table, tell
from fedcef.core.errors import ConfigError, FedcefError, RunError

if TYPE_CHECKING:
    from fedcef.runs.folder import RunFolder
    from fedcef.runs.settings import Settings
    from fedcef.trackers import Tracker

app = typer.Typer(
    help="Composite federated learning over a narrow network.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Bring data sets into the cache folder.", no_args_is_help=True)
app.add_typer(data_app, name="data")


def _set(text: str) -> OptionInfo:
    option = typer.Option("--set", metavar="KEY=VALUE", help=text, autocompletion=completion.setting)
    assert isinstance(option, OptionInfo)
    return option


Changes = Annotated[list[str] | None, _set("Change a setting, e.g. compressor.ratio=0.01.")]
Lists = Annotated[list[str] | None, _set("Change a setting, or sweep over a list, e.g. seed=[0,1,2].")]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="LABEL", help="Keep this variant of [[compare]]; repeatable.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="How many runs at a time, each in its own process.")]
Out = Annotated[Path | None, typer.Option("--out", help="The folder to write to; by default a new one below runs/.")]


@app.command()
def run(
    experiment: Annotated[
        str | None,
        typer.Argument(help="A shipped experiment's name, or a .toml file.", autocompletion=completion.experiment),
    ] = None,
    set_: Changes = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="BYTES", help="All bytes of the run, e.g. 300MB: --set budget=…")
    ] = None,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with the run in this folder.")] = None,
    track: watch.Track = None,
) -> None:
    """Train once and write a run folder."""
    if (experiment is None) == (resume is None):
        raise ConfigError("Give an experiment to run, or --resume with the folder of a run to go on with.")
    from fedcef.python.folder import IN_PYTHON
    from fedcef.runs.folder import RunFolder
    from fedcef.runs.loop import next_folder
    from fedcef.runs.settings import load_settings
    from fedcef.trackers import open_trackers

    trackers = open_trackers(track or [])
    changes = [*(set_ or []), *([f"budget={budget}"] if budget is not None else [])]
    if resume is not None:
        if changes or out:
            raise ConfigError("--resume goes on with a run as it was set; leave --set, --budget and --out away.")
        folder = RunFolder.open(resume)
        config = load_settings(str(folder.config))
        if config.data["name"] == IN_PYTHON:
            raise ConfigError(f"The problem of {resume} was made in Python; go on there: the same run(…, resume=True).")
    else:
        config = load_settings(str(experiment), changes)
        folder = RunFolder.new(out or next_folder(Path("runs"), config.name))
    _train(config, folder, resume is not None, trackers)
    show_table([folder.path])
    tell(f"Run folder: {folder.path}")


@app.command()
def compare(
    experiment: Annotated[
        str, typer.Argument(help="An experiment with [[compare]] entries.", autocompletion=completion.experiment)
    ],
    set_: Changes = None,
    out: Out = None,
) -> None:
    """Run all variants of an experiment, then write a table, a figure and an HTML page.

    Variants whose run in --out is already finished are kept; an interrupted one is resumed.
    """
    from fedcef.cli.batch import Batch
    from fedcef.runs.settings import load_settings
    from fedcef.runs.sweep import expand

    Batch.below(out, expand(load_settings(experiment, set_ or []).variants(), {})).carry_out()


@app.command()
def sweep(
    experiments: Annotated[
        list[str],
        typer.Argument(help="Names of shipped experiments, or .toml files.", autocompletion=completion.experiment),
    ],
    set_: Lists = None,
    only: Only = None,
    jobs: Jobs = 1,
    out: Out = None,
    paper: Annotated[bool, typer.Option("--paper", help="Also draw the paper's figures.")] = False,
    dry: Annotated[bool, typer.Option("--dry", help="Show the runs and do nothing.")] = False,
) -> None:
    """Run every combination of the lists given by --set, for all variants of the experiments.

    Then write a table with the mean over the seeds, a figure and an HTML page.  Runs in --out that are finished are
    kept; interrupted ones are resumed.
    """
    from fedcef.cli.batch import Batch
    from fedcef.runs.sweep import plan

    batch = Batch.below(out, plan(experiments, set_ or [], only or []))
    if dry:
        batch.show()
    else:
        batch.carry_out(jobs, paper)


@app.command()
def frontier(
    experiment: Annotated[
        str, typer.Argument(help="A shipped experiment's name, or a .toml file.", autocompletion=completion.experiment)
    ],
    set_: Lists = None,
    only: Only = None,
    jobs: Jobs = 1,
    out: Out = None,
) -> None:
    """Run all variants of an experiment as `sweep` does, then draw accuracy against all bytes sent.

    An experiment without [[compare]] entries gets a grid of ratios, values and downlinks.
    """
    from fedcef.cli.batch import Batch
    from fedcef.runs.grid import default_grid, variants_or_grid
    from fedcef.runs.settings import load_settings
    from fedcef.runs.sweep import plan, split

    config = load_settings(experiment, split(set_ or [])[0])
    runs = plan([experiment], set_ or [], only or [], variants_or_grid)
    if not config.compare:
        tell(f"{config.name} has no [[compare]] entries; a default grid takes their place:")
        tell("; ".join(variant.label for variant in default_grid(config)))
    Batch.below(out, runs).carry_out(jobs, frontier=config.reference)


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold run folders.")],
    out: Out = None,
    against_density: Annotated[
        bool, typer.Option("--tradeoff", help="Also draw accuracy against density, one line per regulariser.")
    ] = False,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Draw the paper's figures instead: accuracy and loss against GB."),
    ] = False,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Draw accuracy against all bytes sent instead, one point per setting.")
    ] = False,
    references: Annotated[
        str | None, typer.Option("--references", metavar="EXPERIMENT", help="Whose [[reference]] points to draw there.")
    ] = None,
) -> None:
    """Draw the table, the figure and the HTML page of finished runs."""
    from fedcef.report import find_runs
    from fedcef.runs.settings import load_settings

    folders = [folder for path in runs for folder in find_runs(path)]
    out = out or (runs[0] if len(runs) == 1 else Path("report"))
    if paper:
        show_paper(folders, out)
    elif frontier or references:
        show_frontier(folders, out, load_settings(references).reference if references else ())
    else:
        show_report(folders, out)
    if against_density:
        from fedcef.report import load_runs
        from fedcef.report.figures.tradeoff import tradeoff

        tradeoff(load_runs(folders), out / "tradeoff.png")
        tell(f"Wrote {out / 'tradeoff.png'}")


@app.command(name="list")
def list_() -> None:
    """Show what there is: algorithms, compressors, regularisers, data sets, models, partitions, experiments."""
    from fedcef.algorithms import ALGORITHMS
    from fedcef.compressors import COMPRESSORS
    from fedcef.problems.catalog import DATA
    from fedcef.problems.data.datasets import DATASETS
    from fedcef.problems.data.partitions import PARTITIONS
    from fedcef.problems.models import MODELS
    from fedcef.regularizers import REGULARIZERS
    from fedcef.runs.settings import experiments as shipped

    described = {
        "algorithm.name": {name: _line(kind) for name, kind in ALGORITHMS.items()},
        "compressor.name": {name: _line(kind) for name, kind in COMPRESSORS.items()},
        "regularizer.name": {name: _line(kind) for name, kind in REGULARIZERS.items()},
        "data.name": {name: _line(kind) for name, kind in DATA.items()}
        | {name: info.description for name, info in DATASETS.items()},
        "data.partition": {name: _line(kind) for name, kind in PARTITIONS.items()},
        "model.name": {name: _line(kind) for name, kind in MODELS.items()},
        "experiment": shipped(),
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
def data_get(name: Annotated[str, typer.Argument(help="Its name, as `fedcef list` shows it.")]) -> None:
    """Bring a data set into the cache folder (FEDCEF_DATA, by default the user's cache), verified by SHA-256."""
    from fedcef.problems.data.sources import fetch

    fetch(name, log=tell)


@app.command()
def version() -> None:
    """Show the version."""
    console.print(fedcef.__version__)


for command in (doctor, export, report, theory, watch):
    command.register(app)


def main() -> None:
    """Run the command line; a mistake of the user's is one sentence and an exit code, never a traceback."""
    try:
        app(standalone_mode=True)
    except FedcefError as error:
        say(f"Error: {error}", "red")
        sys.exit(error.exit_code)


def _train(config: Settings, folder: RunFolder, resume: bool, trackers: Mapping[str, Tracker]) -> None:
    from fedcef.runs.loop import run as run_to_the_end
    from fedcef.trackers import tracked

    try:
        with progress(config) as bar, tracked(trackers, folder.path, bar, complain=say) as watch:
            run_to_the_end(config, folder, resume=resume, watch=watch)
    except KeyboardInterrupt:
        say(f"Interrupted.  Go on with: fedcef run --resume {folder.path}")
        sys.exit(130)
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT, EACCES, EROFS, EIO):
            raise
        raise RunError(
            f"{error.filename or folder.path} cannot be written: {error.strerror}; make room or rights for it, then go "
            f"on with: fedcef run --resume {folder.path}"
        ) from None


def _line(thing: object) -> str:
    return (getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    main()
