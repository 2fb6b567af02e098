"""What a `data` section of settings names: a source of problems; and the model that it is given by name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn

from fedcef.core.errors import ConfigError
from fedcef.core.parts import choose, is_path, unknown_key
from fedcef.core.rng import Purpose, data_key
from fedcef.problems.buffers import BUFFERS, Buffers
from fedcef.problems.client_data import Samples
from fedcef.problems.models import MODELS
from fedcef.problems.own import call
from fedcef.problems.problem import Problem

ShareOfTest = Annotated[float, Field(gt=0, lt=1)]
"""Between 0 and 1."""


class ProblemSource(ABC):
    """Options of a data section; builds the problem without its regulariser."""

    @abstractmethod
    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        """The problem with so many clients; `model` is the section of that name."""

    def found(self) -> dict[str, Any]:
        """What a record of a run should keep of the data beside its options, in the same section: its checksum."""
        return {}


def seeded_model(section: dict[str, Any], input_shape: tuple[int, ...], num_classes: int, seed: int) -> nn.Module:
    """A model by name or import path, its start drawn by torch's usual rules from a generator seeded for this run.

    It is called with the shape of an input, the number of classes and the other keys of the section: a model of the
    catalogue, or a function or class of the user's own.  What becomes of its running statistics, `buffers_of(section)`,
    is the problem's business.
    """
    name = section.get("name", "softmax")
    options = {key: value for key, value in section.items() if key not in ("name", "buffers")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(data_key(seed, Purpose.PARAMETERS)))
        if is_path(name):
            model = call("model.name", name, input_shape, num_classes, **options)
        else:
            kind = MODELS[choose("model.name", name, MODELS)]
            allowed = ["name", "buffers", *list(inspect.signature(kind).parameters)[2:]]
            if unknown := options.keys() - allowed:
                raise ConfigError(unknown_key(f"model.{min(unknown)}", [f"model.{option}" for option in allowed]))
            model = kind(input_shape, num_classes, **options)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{name} returned {type(model).__name__}; it must return a torch.nn.Module.")
    return model


def set_aside(test: Samples | None, share: float | None) -> tuple[Samples | None, Samples | None]:
    """The test set, and the validation set: so much of the samples that are held out, spread evenly over them.

    What clients hold stays as it is, and so does what is trained.
    """
    if share is None:
        return test, None
    places = torch.arange(0 if test is None else len(test), dtype=torch.float64)
    chosen = ((places + 1) * share).floor() > (places * share).floor()
    if test is None or not 0 < int(chosen.sum()) < len(test):
        raise ConfigError(
            f"data.validation_share is {share}, a part of the test set, which has {len(places)} samples; take another "
            "share, or a larger test set."
        )
    chosen = chosen.to(test.targets.device)
    return test[~chosen], test[chosen]


def buffers_of(section: dict[str, Any]) -> Buffers:
    """What the section of a model says of its running statistics."""
    return choose("model.buffers", section.get("buffers", BUFFERS[0]), BUFFERS)  # type: ignore[return-value]
