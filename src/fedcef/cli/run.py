"""fedcef run: one run, from the start or from where it stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fedcef.cli import completion
from fedcef.cli.progress import progress
from fedcef.cli.shared_options import Changes, Out, Track
from fedcef.cli.terminal import say, show_table, tell
from fedcef.core.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(run)


def run(
    experiment: Annotated[
        str | None,
        typer.Argument(help="A shipped experiment's name, or a .toml file.", autocompletion=completion.experiment),
    ] = None,
    set_: Changes = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="BYTES", help="The bytes the run may send in all, e.g. 300MB.")
    ] = None,
    out: Out = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Resume the run in this folder; --set rounds=N extends it.")
    ] = None,
    track: Track = None,
) -> None:
    """Train once and write a run folder."""
    if (experiment is None) == (resume is None):
        raise ConfigError("Give an experiment to run, or --resume with the folder of a run to continue.")
    from fedcef.simulation.workers import together

    changes = [*(set_ or []), *([f"budget={budget}"] if budget is not None else [])]
    if resume is not None and (out or any(change.partition("=")[0].strip() != "rounds" for change in changes)):
        raise ConfigError(
            "--resume continues a run with its own settings, or with more rounds (--set rounds=N); leave out --budget, "
            "--out and any other --set."
        )
    with together():
        _run(experiment, changes, out, resume, track or [])


def _run(experiment: str | None, changes: list[str], out: Path | None, resume: Path | None, track: list[str]) -> None:
    """Run to the end, in one of the processes of the run or in the only one; the first writes and prints."""
    from fedcef.runs.along import is_first, run_along
    from fedcef.runs.experiments import load_settings
    from fedcef.runs.folder import RunFolder
    from fedcef.runs.run import next_folder
    from fedcef.runs.run import run as run_to_the_end
    from fedcef.runs.settings import IN_PYTHON
    from fedcef.trackers import open_trackers, tracked

    settings = load_settings(str(experiment if resume is None else RunFolder.open(resume).config), changes)
    if not is_first():
        with leaving_on_interrupt():
            run_along(settings)
        return
    trackers = open_trackers(track)
    if resume is not None and settings.data["name"] == IN_PYTHON:
        raise ConfigError(f"The problem of {resume} was defined in Python; resume it there by run(…, resume=True).")
    folder = RunFolder.new(out or next_folder(Path("runs"), settings.name)) if resume is None else RunFolder(resume)

    def how_to_resume() -> str:
        if not folder.config.is_file():
            return "Interrupted before the run began; nothing was kept."
        return f"Interrupted.  Resume with: fedcef run --resume {folder.path}"

    with (
        leaving_on_interrupt(how_to_resume),
        progress(settings) as bar,
        tracked(trackers, folder.path, bar, complain=say) as watch,
    ):
        run_to_the_end(settings, folder, resume=resume is not None, watch=watch)
    show_table([folder.path])
    tell(f"Run folder: {folder.path}")


@contextmanager
def leaving_on_interrupt(sentence: Callable[[], str] | None = None) -> Iterator[None]:
    """Leave with the shell's code for Ctrl-C, after a sentence on how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        if sentence is not None:
            say(sentence())
        sys.exit(130)
