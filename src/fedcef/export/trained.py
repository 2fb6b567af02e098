"""The trained model of a run, built from its settings and its weights; the data is not needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedcef.core import rng
from fedcef.core.errors import RunError
from fedcef.problems.catalog import seeded_model
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.settings import Settings

INPUTS: dict[str, tuple[tuple[int, ...], int]] = {
    "digits": ((1, 8, 8), 10),
    "mnist": ((1, 28, 28), 10),
    "fashion_mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "breast_cancer": ((30,), 2),
    "a9a": ((123,), 2),
    "w8a": ((300,), 2),
}
"""The shape of one input and the number of classes, by data set."""


@dataclass(frozen=True, eq=False)
class Trained:
    model: nn.Module
    input_shape: tuple[int, ...]
    about: dict[str, str]
    """Where it comes from, for whoever reads the exported file."""

    def inputs(self, batch: int) -> Tensor:
        """Standard normal inputs, (batch, *input_shape), always the same; data sets are standardised."""
        numbers = rng.normals(0, rng.SYNTHETIC)(0, batch, *self.input_shape)
        return numbers.to(next(self.model.parameters()).dtype)


def load_trained(path: Path) -> Trained:
    """The model of the run in this folder, on the CPU, in the type that it was trained in."""
    folder = RunFolder(path)
    if not folder.config.is_file():
        raise RunError(f"{path} holds no run; give a folder that `fedcef run` wrote.")
    if not folder.model.is_file():
        raise RunError(f"The run in {path} has no model yet; let it finish by `fedcef run --resume {path}`.")
    config = load_settings(str(folder.config))
    model, input_shape = _untrained(config)
    try:
        weights = load_file(folder.model)
        model.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    except (SafetensorError, StopIteration, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{folder.model} does not fit the run's config.toml, or is damaged: {reason}") from None
    about = {"run": config.label or config.name, "data": str(config.data["name"])}
    return Trained(model.eval().requires_grad_(False), input_shape, about)


def _untrained(config: Settings) -> tuple[nn.Module, tuple[int, ...]]:
    """The module and the shape of its input; problems that are no known data set are built for it."""
    known = INPUTS.get(str(config.data["name"]))
    if known is not None:
        return seeded_model(config.model, *known, config.seed), known[0]
    problem = config.model_copy(update={"device": "cpu"}).build_problem()
    return problem.model, tuple(problem.train.inputs.shape[1:])


def largest_difference(first: nn.Module, second: nn.Module, inputs: Tensor) -> float:
    """max |first - second| over all outputs, as a share of max |first|."""
    with torch.no_grad():
        expected, got = first(inputs), second(inputs)
    scale = float(expected.abs().max())
    return float((expected - got).abs().max()) / (scale or 1.0)
