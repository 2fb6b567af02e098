"""A population drawn over a pool of samples: any number of clients, of whom nothing is stored.

Client i has a mixture of classes p_i ~ Dir(α, …, α).  Each of its samples is of a class drawn from p_i, and any of the
pool's samples of that class with equal chances; so the same sample may be many clients', and now and then one client's
twice.  Mixture and samples are computed when they are asked for, from (seed, client) and (seed, client, sample) alone:
who else takes part, how often and in which order changes nothing.

Dirichlet shares are gamma variates over their sum.  A gamma variate with α is G·U^(1/α), with U uniform and G a gamma
variate with α + 1, for which there is a rejection method that keeps more than 95 of 100 proposals (Marsaglia and Tsang,
A simple method for generating gamma variables, ACM TOMS 26, 2000).  A fixed number of proposals is drawn, so that a
device needs no host to tell it when to stop: that all are rejected is less likely than a rounding error is large.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ProblemError
from fedcef.core.parts import check
from fedcef.core.ranges import Count
from fedcef.core.rng import Purpose, data_key
from fedcef.problems.client_data import ClientData, Convert, Look, Samples
from fedcef.problems.clients.pool import PoolData, read_pool

_MIXTURE, _SAMPLE = 64, 65  # what a partition's key is folded for; `partitions.py` has the first numbers
_PROPOSALS = 12  # 0.049^12 < 2^-52


class DrawnData(PoolData):
    """N clients with `size` samples each of a pool, by mixtures of classes ~ Dir(alpha)."""

    equal_sizes = True

    def __init__(self, pool: Samples, num_clients: int, size: int, alpha: float, seed: int) -> None:
        super().__init__(pool)
        self._num_clients, self.size, self.alpha, self.seed = num_clients, size, alpha, seed
        classes, self._held = torch.unique(pool.targets, return_counts=True)
        self.num_classes = len(classes)
        self._order = torch.argsort(pool.targets, stable=True)  # the pool class by class
        self._starts = self._held.cumsum(0) - self._held

    @property
    def num_clients(self) -> int:
        """N, how many clients there are."""
        return self._num_clients

    @property
    def largest(self) -> int:
        """The size of every client."""
        return self.size

    @property
    def sizes(self) -> Tensor:  # type: ignore[override]
        """One number, seen N times."""
        return torch.tensor(self.size, device=self.device).expand(self.num_clients)

    def sizes_of(self, clients: Tensor) -> Tensor:
        """The same for all."""
        return torch.full_like(clients, self.size)

    def mixtures(self, clients: Tensor) -> Tensor:
        """The clients' shares of the classes that occur in the pool, ~ Dir(alpha): (S,) -> (S, C) float64."""
        classes = torch.arange(self.num_classes, device=clients.device)
        keys = data_key(self.seed, Purpose.PARTITION, _MIXTURE, clients.unsqueeze(-1), classes)
        return log_gamma_variates(keys, self.alpha).softmax(-1)

    def numbers(self, clients: Tensor, rows: Tensor) -> Tensor:
        """Each sample's class from its client's mixture, and which one of that class: two hashes."""
        keys = data_key(self.seed, Purpose.PARTITION, _SAMPLE, clients.unsqueeze(-1), rows)
        place = rng.uniform(keys, 1).squeeze(-1)
        kind = torch.searchsorted(self.mixtures(clients).cumsum(-1), place, right=True).clamp(max=self.num_classes - 1)
        which = rng.integers(keys, 2, self._held[kind])[..., 1]  # the first one's bits have chosen the class
        return self._order[self._starts[kind] + which]

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> ClientData:
        """The pool on a device; clients' samples are computed there."""
        return self._with(self.pool.to(device, dtype))

    def converted(self, convert: Convert) -> ClientData:
        """The same clients of the pool in its other form."""
        return self._with(convert(self.pool, "the pool"))

    def _with(self, pool: Samples) -> DrawnData:
        data = DrawnData(pool, self.num_clients, self.size, self.alpha, self.seed)
        data.classes = self.classes
        return data

    def checked(self, look: Look) -> ClientData:
        """The same, after the pool was looked at."""
        look(self.pool, lambda row: "The pool")
        return self

    def identity(self) -> list[Tensor]:
        """The pool, and what is drawn from it."""
        drawn = torch.tensor([self.num_clients, self.size, self.seed, self.alpha], dtype=torch.float64)
        return [drawn, self.pool.inputs, self.pool.targets]


def drawn(inputs: Any, targets: Any, num_clients: int, size: int = 50, alpha: float = 0.5, seed: int = 0) -> ClientData:
    """A population of any size over one data set, of which nothing is stored.

    Args:
        inputs: Of the pool from which clients are drawn, a tensor or an array.
        targets: The classes of the pool's samples, one each.
        num_clients: N; a million costs no more than ten.
        size: How many samples each client has.
        alpha: Of the Dirichlet distribution of a client's shares of the classes: small = few classes, large = all.
        seed: What all of it is drawn from.

    >>> inputs, targets = torch.arange(6.0).view(6, 1), torch.tensor([0, 0, 1, 1, 2, 2])
    >>> population = drawn(inputs, targets, num_clients=1_000_000, size=4, alpha=0.1)
    >>> population.samples(999_999).targets.tolist()
    [0, 0, 0, 0]
    """
    num_clients, size = check("num_clients", Count, num_clients), check("size", Count, size)
    alpha = check("alpha", Annotated[float, Field(gt=0, le=1e6)], alpha)
    pool, classes = read_pool(inputs, targets)
    if pool.targets.ndim != 1 or pool.targets.is_floating_point():
        raise ProblemError(
            f"Clients are drawn by class, and the targets {tuple(pool.targets.shape)} {pool.targets.dtype} are not one "
            "class number for each sample; give class numbers, or take `from_arrays`."
        )
    data = DrawnData(pool, num_clients, size, alpha, seed)
    data.classes = classes
    return data


def log_gamma_variates(keys: Tensor, alpha: float) -> Tensor:
    """The logarithm of a gamma variate for each key: (...) -> (...) float64.

    Logarithms, since with a small alpha most variates are smaller than any floating-point number.
    """
    d = alpha + 1 - 1 / 3
    u = rng.uniform(keys, 2 * _PROPOSALS + 1) + 2.0**-54
    x: Tensor = torch.special.ndtri(u[..., :_PROPOSALS])
    v = (1 + x / sqrt(9 * d)) ** 3
    log_v = v.clamp(min=1e-300).log()
    kept = (v > 0) & (u[..., _PROPOSALS:-1].log() < 0.5 * x * x + d * (1 - v + log_v))
    first = kept.to(torch.int8).argmax(-1, keepdim=True)
    variates: Tensor = log_v.gather(-1, first).squeeze(-1) + log(d) + u[..., -1].log() / alpha
    return variates
