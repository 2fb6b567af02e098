"""Arguments and options that several commands share, each declared once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedcef.cli import completion

Experiment = Annotated[
    str, typer.Argument(help="A shipped experiment's name, or a .toml file.", autocompletion=completion.experiment)
]
RunFolders = Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold run folders.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, e.g. compressor.ratio=0.01; repeatable.",
        autocompletion=completion.setting,
    ),
]
Lists = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, or sweep over a list, e.g. seed=[0,1,2]; repeatable.",
        autocompletion=completion.setting,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="LABEL", help="Keep this variant of [[compare]], by its label or a part of it; repeatable."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="How many runs at a time, each in its own process.")]
Out = Annotated[Path | None, typer.Option("--out", help="The folder to write to; by default a new one below runs/.")]
Track = Annotated[
    list[str] | None,
    typer.Option("--track", metavar="TRACKER", help="Also write to tensorboard, mlflow or wandb; repeatable."),
]


def default_folder(runs: Sequence[Path]) -> Path:
    """Where something about runs is written: beside them, or to report/ if they lie in several places."""
    return runs[0] if len(runs) == 1 else Path("report")
