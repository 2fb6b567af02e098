"""Ways of dealing a data set's samples to the clients.

Every way is a function of the samples' classes, the number of clients and the seed, and returns a `Deal`: numbers of
samples, disjoint, each client's in a shuffled order, and the same for the same seed.  All samples are dealt, but for
those of natural clients that are left out.  All randomness hangs on the key (seed, PARTITION); only Dirichlet variates
come from a numpy Generator (PCG64), which that key seeds, since its gamma variates are well tested.  They are therefore
as reproducible as numpy's Generator is: exactly for one version of numpy, by intent across versions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.parts import is_path
from fedcef.problems.data.partitions.column import by_column
from fedcef.problems.data.partitions.deal import Deal, check_whole
from fedcef.problems.data.partitions.labels import dirichlet, iid, shards
from fedcef.problems.data.partitions.sizes import lognormal, zipf
from fedcef.problems.own import call

__all__ = ["PARTITIONS", "Deal", "deal", "partition"]

PARTITIONS: dict[str, Callable[..., Deal]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "shards": shards,
    "lognormal": lognormal,
    "zipf": zipf,
    "by_column": by_column,
}


def partition(name: str, targets: Tensor, num_clients: int, seed: int, **options: Any) -> list[Tensor]:
    """The samples of each client: index tensors into `targets` (n,); see `deal`."""
    return deal(name, targets, num_clients, seed, **options).parts()


def deal(name: str, targets: Tensor, num_clients: int, seed: int, **options: Any) -> Deal:
    """Who holds which of the samples with these `targets` (n,), in one list.

    `name` is one of `PARTITIONS`, or the import path "module:function" of another way of dealing:
    function(targets, num_clients, seed, **options) returns one sequence of sample numbers for each client.
    """
    check_whole("num_clients", num_clients)
    if num_clients > len(targets):
        raise ConfigError(
            f"{num_clients} clients cannot share {len(targets)} samples; take fewer clients, or partition drawn, in "
            "which clients have samples in common."
        )
    if is_path(name):
        found = call("data.partition", name, targets, num_clients, seed, **options)
        dealt = _checked(name, found, num_clients, len(targets))
    else:
        dealt = _dealer(name, options)(targets, num_clients, seed, **options)
    return dealt.shuffled(seed)


def options_of(name: str) -> list[str]:
    """The options of a partition of `PARTITIONS`."""
    return list(inspect.signature(PARTITIONS[name]).parameters)[3:]


def _dealer(name: str, options: dict[str, Any]) -> Callable[..., Deal]:
    """The function of this name, if it takes these options."""
    if name not in PARTITIONS:
        raise ConfigError(f"there is no partition '{name}'; there are {', '.join(PARTITIONS)}.")
    allowed = options_of(name)
    if unknown := sorted(set(options) - set(allowed)):
        raise ConfigError(f"partition {name} has no option {unknown[0]}; it has {', '.join(allowed) or 'none'}.")
    return PARTITIONS[name]


def _checked(name: str, parts: Any, num_clients: int, samples: int) -> Deal:
    """What a function from outside returned, if it is a deal."""
    try:
        dealt = [torch.as_tensor(part, dtype=torch.int64) for part in parts]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{name} must return one sequence of sample numbers for each client: {error}.") from None
    if len(dealt) != num_clients or not all(part.ndim == 1 and len(part) for part in dealt):
        raise ConfigError(f"{name} must return sample numbers for each of the {num_clients} clients, and none empty.")
    found = Deal.of(dealt)
    if int(found.rows.min()) < 0 or int(found.rows.max()) >= samples:
        raise ConfigError(f"{name} dealt samples that do not exist; they are numbered 0 to {samples - 1}.")
    return found
