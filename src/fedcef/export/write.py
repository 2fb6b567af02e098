"""From a run folder to a file that serves the model elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from fedcef.core.chain import NotAChainError
from fedcef.core.errors import RunError
from fedcef.core.parts import choose
from fedcef.export.formats import FORMATS
from fedcef.export.gain import BATCHES, TOLERANCE, Size, latencies
from fedcef.export.shrink import count, shrink
from fedcef.export.trained import Trained, largest_difference, load_trained
from fedcef.runs.folder import write_atomically

_EXAMPLES = 64  # inputs on which outputs are compared


@dataclass(frozen=True)
class Exported:
    path: Path
    whole: Size
    shrunk: Size | None
    """None if nothing was asked for, or could be done."""
    difference: float
    """The largest difference of outputs, as a share of the largest output."""
    note: str = ""
    """Why the model was not shrunk although that was asked for."""


def export(run: Path, format: str, out: Path | None = None, *, shrinks: bool = True) -> Exported:
    """Write the run's model as one of `FORMATS`, by default into the run folder."""
    kind = FORMATS[choose("--format", format, FORMATS)]
    trained = load_trained(run)
    model, note = _shrunk(trained) if shrinks else (None, "")
    difference = 0.0 if model is None else largest_difference(trained.model, model, trained.inputs(_EXAMPLES))
    if not difference <= TOLERANCE:
        raise RunError(
            f"The shrunk model's outputs differ by {difference:.1e} of the largest, more than {TOLERANCE:g}; "
            "export it whole with --no-shrink."
        )

    def encode(model: nn.Module) -> bytes:
        return kind.encode(model, trained.inputs(2), trained.about)

    models = [trained.model] if model is None else [trained.model, model]
    files = [encode(model) for model in models]
    path = out or run / f"export{kind.suffix}"
    try:
        write_atomically(path, lambda part: part.write_bytes(files[-1]))
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}.") from None
    times = zip(*(latencies(models, trained.inputs(batch)) for batch in BATCHES), strict=True)
    sizes = [Size(count(m), len(file), latency) for m, file, latency in zip(models, files, times, strict=True)]
    return Exported(path, sizes[0], None if model is None else sizes[1], difference, note)


def _shrunk(trained: Trained) -> tuple[nn.Module | None, str]:
    try:
        return shrink(trained.model, trained.inputs(2)), ""
    except NotAChainError as error:
        return None, f"The model is exported as it is: it cannot be shrunk because {error}."
