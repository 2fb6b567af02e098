"""From a run folder to a file that serves the model elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from fedcef.core.chain import NotAChainError
from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.core.parts import choose
from fedcef.export.formats import FORMATS
from fedcef.export.gain import BATCHES, TOLERANCE, Size, latencies
from fedcef.export.shrink import count, shrink
from fedcef.export.trained import Trained, largest_difference, load_trained
from fedcef.runs.folder import RunFolder

_EXAMPLES = 64  # inputs on which outputs are compared


@dataclass(frozen=True)
class Exported:
    """What was written, and what shrinking gained."""

    path: Path
    whole: Size
    shrunk: Size | None
    """None if nothing was asked for, or could be done."""
    difference: float
    """The largest difference of outputs, as a share of the largest output."""
    note: str = ""
    """Why the model was not shrunk although that was asked for."""
    accuracy: float | None = None
    """On the run's test set, as its summary has it: a small file of a useless model is no gain."""


def export_model(
    run: str | Path,
    format: str = "safetensors",
    out: str | Path | None = None,
    *,
    shrinks: bool = True,
    model: nn.Module | str | None = None,
    input_shape: Sequence[int] | None = None,
) -> Exported:
    """Write a run's model as a file for elsewhere.

    Args:
        run: The folder of a finished run.
        format: One of `FORMATS`: safetensors, torch or onnx.
        out: The file to write; by default `export.*` in the run folder.
        shrinks: Whether zero filters and neurons are taken out.
        model: For a run from Python, the module that was trained, or the import path of a function that makes it.
        input_shape: The shape of one input of that module; by default what its first layer takes, if that is linear.

    >>> export_model("runs/mine", "onnx", model=Net(), input_shape=(1, 28, 28))
    """
    kind = FORMATS[choose("--format", format, FORMATS)]
    trained = load_trained(Path(run), model, input_shape)
    small, note = _shrunk(trained) if shrinks else (None, "")
    difference = 0.0 if small is None else largest_difference(trained.model, small, trained.inputs(_EXAMPLES))
    if not difference <= TOLERANCE:
        raise RunError(
            f"The shrunk model's outputs differ by {difference:.1e} of the largest, more than {TOLERANCE:g}; "
            "export it whole with --no-shrink."
        )

    def encode(model: nn.Module) -> bytes:
        return kind.encode(model, trained.inputs(2), trained.about)

    models = [trained.model] if small is None else [trained.model, small]
    files = [encode(model) for model in models]
    path = Path(out or Path(run) / f"export{kind.suffix}")
    Disk().replace(path, files[-1])
    times = zip(*(latencies(models, trained.inputs(batch)) for batch in BATCHES), strict=True)
    sizes = [Size(count(m), len(file), latency) for m, file, latency in zip(models, files, times, strict=True)]
    accuracy = RunFolder(Path(run)).read_summary().get("accuracy")
    return Exported(path, sizes[0], None if small is None else sizes[1], difference, note, accuracy)


def _shrunk(trained: Trained) -> tuple[nn.Module | None, str]:
    try:
        return shrink(trained.model, trained.inputs(2)), ""
    except NotAChainError as error:
        return None, f"The model is exported as it is: it cannot be shrunk because {error}."
