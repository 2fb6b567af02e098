"""Problems by name: what the `data` section of a run's settings builds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn

from fedcef.core.errors import ConfigError
from fedcef.core.parts import choose, unknown_key
from fedcef.core.ranges import Count
from fedcef.core.rng import Purpose, data_key
from fedcef.problems.augment import AUGMENTATIONS
from fedcef.problems.data.datasets import DATASETS, load
from fedcef.problems.data.partitions import partition
from fedcef.problems.lasso import lasso
from fedcef.problems.matrix import low_rank
from fedcef.problems.models import MODELS
from fedcef.problems.problem import Problem, Samples
from fedcef.regularizers import Zero


class ProblemSource(ABC):
    """Options of a data section; builds the problem without its regulariser."""

    @abstractmethod
    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem: ...


@dataclass(frozen=True, kw_only=True)
class Classification(ProblemSource):
    """Samples dealt to the clients, a model by name, cross-entropy."""

    name: str
    partition: Literal["iid", "dirichlet", "shards"] = "dirichlet"
    alpha: Annotated[float, Field(gt=0)] = 0.5
    min_size: Count = 10
    classes_per_client: Count = 2
    augment: Literal["none", "crop_flip"] = "none"
    """What is done to the images of minibatches: padded by 4, cropped and mirrored at random."""

    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        data = load(self.name)
        options: dict[str, dict[str, Any]] = {
            "iid": {},
            "dirichlet": {"alpha": self.alpha, "min_size": self.min_size},
            "shards": {"classes_per_client": self.classes_per_client},
        }
        parts = partition(self.partition, data.train_targets, num_clients, seed, **options[self.partition])
        return Problem.build(
            seeded_model(model, tuple(data.train_inputs.shape[1:]), data.num_classes, seed),
            nn.functional.cross_entropy,
            clients=[(data.train_inputs[part], data.train_targets[part]) for part in parts],
            test=Samples(data.test_inputs, data.test_targets),
            augment=AUGMENTATIONS[self.augment],
        )


@dataclass(frozen=True, kw_only=True)
class Lasso(ProblemSource):
    """Synthetic sparse regression with a known support."""

    name: str
    dim: Count = 1024
    samples: Count = 128
    support: Count = 512
    noise: Annotated[float, Field(ge=0)] = 1.0

    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        if model:
            raise ConfigError("The lasso problem has its own linear model; leave the [model] section out.")
        if self.support > self.dim:
            raise ConfigError(f"data.support is {self.support}; it must be at most data.dim = {self.dim}.")
        return lasso(
            Zero(),
            num_clients=num_clients,
            samples=self.samples,
            dim=self.dim,
            support=self.support,
            noise=self.noise,
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True)
class LowRank(ProblemSource):
    """Synthetic regression on a low-rank matrix."""

    name: str
    size: Count = 32
    rank: Count = 16
    samples: Count = 128
    heterogeneity: Annotated[float, Field(ge=0)] = 1.0
    noise: Annotated[float, Field(ge=0)] = 1.0

    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        if model:
            raise ConfigError("The matrix problem has its own linear model; leave the [model] section out.")
        if self.rank > self.size:
            raise ConfigError(f"data.rank is {self.rank}; it must be at most data.size = {self.size}.")
        return low_rank(
            Zero(),
            num_clients=num_clients,
            samples=self.samples,
            size=self.size,
            rank=self.rank,
            heterogeneity=self.heterogeneity,
            noise=self.noise,
            seed=seed,
        )


def seeded_model(section: dict[str, Any], input_shape: tuple[int, ...], num_classes: int, seed: int) -> nn.Module:
    """A model by name, its start drawn by torch's usual rules from a generator seeded for this run."""
    name = choose("model.name", section.get("name", "softmax"), MODELS)
    for key in section.keys() - {"name"}:
        raise ConfigError(unknown_key(f"model.{key}", ["model.name"]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(data_key(seed, Purpose.PARAMETERS)))
        return MODELS[name](input_shape, num_classes)


DATA: dict[str, type[ProblemSource]] = {
    **dict.fromkeys(DATASETS, Classification),
    "lasso": Lasso,
    "matrix": LowRank,
}
