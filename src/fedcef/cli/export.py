"""fedcef export: a run's model as a file for use elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from fedcef.cli.terminal import console, say, tell
from fedcef.core.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(export)


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    format: Annotated[str, typer.Option("--format", "-f", help="safetensors, torch or onnx.")] = "safetensors",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; by default export.* in the run folder.")
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Whether to remove filters and neurons that are zero.")
    ] = True,
    model: Annotated[
        str | None,
        typer.Option("--model", help="For a run from Python: the function that builds its module, package:name."),
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option("--input-shape", help="With --model: the shape of one input, e.g. 1,28,28.")
    ] = None,
) -> None:
    """Write the trained model to a file for use elsewhere.

    Filters and neurons that are zero are removed.
    """
    from fedcef.export import export_model
    from fedcef.export.gain import BATCHES

    done = export_model(run, format, out, shrinks=shrink, model=model, input_shape=_shape(input_shape))
    if done.note:
        say(done.note, "yellow")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("")
    for title in ("whole", "shrunk", "ratio") if done.shrunk else ("whole",):
        table.add_column(title, justify="right")

    def row(name: str, whole: float, shrunk: float, text: str, ratio: bool = True) -> None:
        cells = [text.format(whole), text.format(shrunk), f"{whole / shrunk:.2f}×" if ratio else ""]
        table.add_row(name, *cells[: len(table.columns) - 1])

    after = done.shrunk or done.whole
    if done.accuracy is not None:
        row("test accuracy, %", 100 * done.accuracy, 100 * done.accuracy, "{:.2f}", ratio=False)
    row("parameters", done.whole.parameters, after.parameters, "{:,}")
    row("file, bytes", done.whole.file_bytes, after.file_bytes, "{:,}")
    for batch, whole, shrunk in zip(BATCHES, done.whole.latency_s, after.latency_s, strict=True):
        row(f"latency of a batch of {batch}, ms", 1e3 * whole, 1e3 * shrunk, "{:.3f}")
    console.print(table)
    if done.shrunk and done.shrunk.parameters == done.whole.parameters:
        tell("No filter or neuron could be removed; regularizer.name=group_lasso makes whole ones zero.")
    if done.shrunk:
        tell(f"Largest difference of outputs on random inputs: {done.difference:.1e} of the largest output.")
    tell("Latency: median on one CPU thread, torch without compilation.")
    tell(f"Wrote {done.path}")


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sides = [part.strip() for part in text.split(",")]
    if not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise ConfigError(f"--input-shape is {text!r}; it must be whole numbers separated by commas, such as 1,28,28.")
    return tuple(int(side) for side in sides)
