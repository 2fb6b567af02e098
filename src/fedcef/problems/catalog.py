"""Problems by name: what the `data` section of a run's settings builds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from fedcef.core.errors import ConfigError
from fedcef.core.parts import choose, is_path
from fedcef.core.ranges import Count, Positive
from fedcef.problems.augment import AUGMENTATIONS
from fedcef.problems.client_data import ClientData, PooledData
from fedcef.problems.clients.drawn import drawn
from fedcef.problems.data.datasets import DATASETS, load
from fedcef.problems.data.federated_files import FORMATS
from fedcef.problems.data.partitions import PARTITIONS, Deal, deal, options_of
from fedcef.problems.federated import Federated
from fedcef.problems.lasso import lasso
from fedcef.problems.matrix import low_rank
from fedcef.problems.problem import Problem, Samples
from fedcef.problems.source import ProblemSource, ShareOfTest, buffers_of, seeded_model, set_aside
from fedcef.problems.text.sources import StandardLibrary, Text
from fedcef.regularizers import Zero

DRAWN = "drawn"
"""The partition that deals no samples out: clients are drawn over all of them, by `fedcef.problems.clients.drawn`."""


@dataclass(frozen=True, kw_only=True)
class Classification(ProblemSource):
    """Samples dealt to the clients, a model by name, cross-entropy."""

    name: str
    partition: str = "dirichlet"
    """How samples are dealt to the clients: a name in `PARTITIONS`, or the import path of a function.  With "drawn"
    there are any number of clients, each of whom holds some of the samples, whoever else does."""
    alpha: Annotated[float, Field(gt=0)] = 0.5
    """The parameter of the Dirichlet distribution of labels; the smaller, the more clients differ."""
    min_size: Count = 10
    """How many samples every client has at least; shares are drawn again until that holds."""
    classes_per_client: Count = 2
    """For label shards: how many shards, of one class for the most part, a client gets."""
    sigma: Positive = 1.0
    """For log-normal sizes: the standard deviation of their logarithm."""
    exponent: Positive = 1.0
    """For Zipf's sizes: how fast they fall."""
    labels: Literal["iid", "dirichlet"] = "iid"
    """How labels are dealt to clients of log-normal or Zipf sizes."""
    column: str = ""
    """Whose each training sample is: a file "ids.npz:key" or "ids.npy", or the import path of a function."""
    samples_per_client: Count = 50
    """How many samples each client of a drawn population holds."""
    partition_options: dict[str, Any] = field(default_factory=dict)
    """Options of a partition of the user's own."""
    augment: Literal["none", "crop_flip"] = "none"
    """What is done to the images of minibatches: padded by 4, cropped and mirrored at random."""
    validation_share: ShareOfTest | None = None
    """How much of the test set is set aside as the validation set, by which a run may be steered; nothing = none."""

    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        """The problem with these clients; the deal and the model's start depend on the seed."""
        data = load(self.name)
        test, validation = set_aside(Samples(data.test_inputs, data.test_targets), self.validation_share)
        return Problem.build(
            seeded_model(model, tuple(data.train_inputs.shape[1:]), data.num_classes, seed),
            nn.functional.cross_entropy,
            clients=self._clients(Samples(data.train_inputs, data.train_targets), num_clients, seed),
            test=test,
            validation=validation,
            augment=AUGMENTATIONS[self.augment],
            buffers=buffers_of(model),
        )

    def _clients(self, pool: Samples, num_clients: int, seed: int) -> ClientData:
        """The samples in the order of the clients, which makes a client's a view; or a population drawn over them."""
        if self.partition == DRAWN:
            options = self.options()
            size = options.pop("samples_per_client")
            return drawn(pool.inputs, pool.targets, num_clients, size, seed=seed, **options)
        dealt = self.deal(pool.targets, num_clients, seed)
        return PooledData.cut(pool[dealt.rows], dealt.sizes)

    def deal(self, targets: Tensor, num_clients: int, seed: int) -> Deal:
        """Who holds which of the samples with these targets."""
        return deal(self.partition, targets, num_clients, seed, **self.options())

    def options(self) -> dict[str, Any]:
        """The options of the partition that is chosen."""
        own = is_path(self.partition)
        allowed = [] if own else _options_of(choose("data.partition", self.partition, [*PARTITIONS, DRAWN]))
        for name in unused_options(self.partition):
            if getattr(self, name) != getattr(Classification, name):
                raise ConfigError(f"data.{name} is not for the partition {self.partition}; leave it out.")
        if self.partition_options and not own:
            raise ConfigError("data.partition_options are for a partition of your own; leave them out.")
        return self.partition_options if own else {name: getattr(self, name) for name in allowed}


def unused_options(partition: str) -> list[str]:
    """Options that a partition has no use for; those that every run was always written with are let through."""
    used = [] if is_path(partition) else _options_of(partition)
    return [name for name in ("sigma", "exponent", "labels", "column", "samples_per_client") if name not in used]


def _options_of(partition: str) -> list[str]:
    if partition == DRAWN:
        return ["alpha", "samples_per_client"]
    return options_of(partition) if partition in PARTITIONS else []


@dataclass(frozen=True, kw_only=True)
class Lasso(ProblemSource):
    """Synthetic sparse regression with a known support."""

    name: str
    dim: Count = 1024
    """How many parameters there are."""
    samples: Count = 128
    """How many samples each client has."""
    support: Count = 512
    """How many of the true parameters are not zero."""
    noise: Annotated[float, Field(ge=0)] = 1.0
    """The standard deviation of the noise in the targets."""

    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        """The problem, made from the seed; it has a model of its own."""
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
    """How many rows, and how many columns, the matrix has."""
    rank: Count = 16
    """The rank of the true matrix."""
    samples: Count = 128
    """How many samples each client has."""
    heterogeneity: Annotated[float, Field(ge=0)] = 1.0
    """How far the means of the clients' samples lie apart; 0 = not at all."""
    noise: Annotated[float, Field(ge=0)] = 1.0
    """The standard deviation of the noise in the targets."""

    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        """The problem, made from the seed; it has a model of its own."""
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


DATA: dict[str, type[ProblemSource]] = {
    **dict.fromkeys(DATASETS, Classification),
    "lasso": Lasso,
    "matrix": LowRank,
    "stdlib": StandardLibrary,
    "text": Text,
    **dict.fromkeys(FORMATS, Federated),
}
