"""The trained model of a run, built from its settings and its weights; the data is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fedcef.core.errors import ConfigError, RunError
from fedcef.core.rng import Purpose, normals
from fedcef.problems.own import call
from fedcef.problems.source import seeded_model
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.kinds import resume_command
from fedcef.runs.settings import IN_PYTHON, Settings

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
    """A model with its weights, and what it takes."""

    model: nn.Module
    input_shape: tuple[int, ...]
    about: dict[str, str]
    """Where it comes from, for whoever reads the exported file."""

    def inputs(self, batch: int) -> Tensor:
        """Standard normal inputs, (batch, *input_shape), always the same; data sets are standardised."""
        numbers = normals(0, Purpose.SYNTHETIC)(0, batch, *self.input_shape)
        return numbers.to(next(self.model.parameters()).dtype)


def load_trained(path: Path, model: nn.Module | str | None = None, input_shape: Sequence[int] | None = None) -> Trained:
    """The model of the run in this folder, on the CPU, in the type that it was trained in.

    Args:
        path: The folder of a finished run.
        model: The module that was trained, or the import path of a function that makes it.  It is needed where the
            settings do not build it: for runs from Python.  Its own parameters are of no account.
        input_shape: The shape of one input of that module; by default what its first layer takes, if that is linear.
    """
    folder = RunFolder(path)
    if not folder.config.is_file():
        raise RunError(f"{path} holds no run; give a folder that `fedcef run` wrote.")
    if not folder.model.is_file():
        raise RunError(f"The run in {path} has no model yet; let it finish by `{resume_command(path)}`.")
    settings, weights = load_settings(str(folder.config)), folder.read_model()
    if model is not None:
        module = _given(model)
        shape = tuple(input_shape) if input_shape else _first_inputs(module)
    elif input_shape:
        raise ConfigError("The shape of inputs is for a model that is given too; leave it out.")
    elif settings.data["name"] == IN_PYTHON:
        raise ConfigError(
            f"The run in {path} was made in Python, and its settings do not tell its module; give it by "
            "--model package.module:function, or in Python by fedcef.export.export_model(run, format, model=module)."
        )
    else:
        module, shape = _built(settings)
    _load(module, weights, folder.model)
    about = {"run": settings.label or settings.name, "data": str(settings.data["name"])}
    trained = Trained(module.eval().requires_grad_(False), shape, about)
    if model is not None:
        _try_out(trained)
    return trained


def _built(settings: Settings) -> tuple[nn.Module, tuple[int, ...]]:
    """The module and the shape of its input; problems that are no known data set are built for it."""
    known = INPUTS.get(str(settings.data["name"]))
    if known is not None:
        return seeded_model(settings.model, *known, settings.seed), known[0]
    problem = settings.model_copy(update={"device": "cpu"}).build_problem()
    return problem.model, tuple(problem.example.inputs.shape[1:])


def _given(model: nn.Module | str) -> nn.Module:
    made = call("--model", model) if isinstance(model, str) else deepcopy(model)
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{model} returned {type(made).__name__}; it must return a torch.nn.Module.")
    return made.cpu()


def _first_inputs(module: nn.Module) -> tuple[int, ...]:
    first = next((layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None), None)
    if not isinstance(first, nn.Linear):
        raise ConfigError(
            "The model's first layer does not tell the shape of an input; give it, e.g. --input-shape 1,28,28."
        )
    return (first.in_features,)


@torch.no_grad()
def _load(module: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Put a model's tensors into a module; tied ones may stand there under each of their names."""
    buffers = {name: buffer for name, buffer in module.named_buffers() if name in weights}
    wanted = dict(module.named_parameters()) | buffers
    known = module.state_dict().keys()
    wrong = [name for name in wanted if name not in weights or weights[name].shape != wanted[name].shape]
    wrong += [name for name in weights if name not in known]
    if wrong:
        raise RunError(f"{path} does not fit the model: {wrong[0]} differs or is missing.")
    module.to(torch.float64 if any(tensor.dtype == torch.float64 for tensor in weights.values()) else torch.float32)
    for name, tensor in wanted.items():
        tensor.data = weights[name]


def _try_out(trained: Trained) -> None:
    try:
        with torch.no_grad():
            trained.model(trained.inputs(2))
    except Exception as error:  # whatever the user's module says to inputs of a wrong shape
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"The model does not take inputs of shape {trained.input_shape}; give theirs, e.g. --input-shape 1,28,28 "
            f"({type(error).__name__}: {reason})."
        ) from None


def largest_difference(first: nn.Module, second: nn.Module, inputs: Tensor) -> float:
    """max |first - second| over all outputs, as a share of max |first|."""
    with torch.no_grad():
        expected, got = first(inputs), second(inputs)
    scale = float(expected.abs().max())
    return float((expected - got).abs().max()) / (scale or 1.0)
