"""Ways of dealing a data set's samples to the clients.

Every way returns one index tensor per client: disjoint, together all samples, each in a shuffled order, and
the same for the same seed.  All randomness hangs on the key (seed, PARTITION); only the Dirichlet proportions
come from a numpy Generator (PCG64), which that key seeds, since its gamma variates are well tested.  They are
therefore as reproducible as numpy's Generator is: exactly for one version of numpy, by intent across versions.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.parts import is_path
from fedcef.core.rng import Purpose, data_key
from fedcef.problems.own import call

_MOST_DRAWS = 1000
_ORDER, _DRAW, _DEAL, _SHUFFLE = range(4)  # what a partition's key is folded for


def partition(name: str, targets: Tensor, num_clients: int, seed: int, **options: Any) -> list[Tensor]:
    """The samples of each client: index tensors into `targets` (n,).

    `name` is one of `PARTITIONS`, or the import path "module:function" of another way of dealing:
    function(targets, num_clients, seed, **options) returns one sequence of sample numbers for each client.
    """
    _check_whole("num_clients", num_clients)
    if num_clients > len(targets):
        raise ConfigError(f"{num_clients} clients cannot share {len(targets)} samples; take fewer clients.")
    if is_path(name):
        found = call("data.partition", name, targets, num_clients, seed, **options)
        parts = _checked(name, found, num_clients, len(targets))
    else:
        parts = _dealer(name, options)(targets, num_clients, seed, **options)
    shuffles = data_key(seed, Purpose.PARTITION, _SHUFFLE, torch.arange(num_clients))
    return [part[rng.permutation(shuffle, len(part))] for part, shuffle in zip(parts, shuffles, strict=True)]


def _dealer(name: str, options: dict[str, Any]) -> Callable[..., list[Tensor]]:
    """The function of this name, if it takes these options."""
    if name not in PARTITIONS:
        raise ConfigError(f"there is no partition '{name}'; there are {', '.join(PARTITIONS)}.")
    allowed = list(inspect.signature(PARTITIONS[name]).parameters)[3:]
    if unknown := sorted(set(options) - set(allowed)):
        raise ConfigError(f"partition {name} has no option {unknown[0]}; it has {', '.join(allowed) or 'none'}.")
    return PARTITIONS[name]


def _checked(name: str, parts: Any, num_clients: int, samples: int) -> list[Tensor]:
    """What a function from outside returned, if it is a deal."""
    try:
        dealt = [torch.as_tensor(part, dtype=torch.int64) for part in parts]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{name} must return one sequence of sample numbers for each client: {error}.") from None
    if len(dealt) != num_clients or not all(part.ndim == 1 and len(part) for part in dealt):
        raise ConfigError(f"{name} must return sample numbers for each of the {num_clients} clients, and none empty.")
    everything = torch.cat(dealt)
    if int(everything.min()) < 0 or int(everything.max()) >= samples:
        raise ConfigError(f"{name} dealt samples that do not exist; they are numbered 0 to {samples - 1}.")
    return dealt


def iid(targets: Tensor, num_clients: int, seed: int) -> list[Tensor]:
    """Equal shares of a random order; sizes differ by one at most."""
    return list(rng.permutation(data_key(seed, Purpose.PARTITION, _DEAL), len(targets)).tensor_split(num_clients))


def dirichlet(targets: Tensor, num_clients: int, seed: int, alpha: float = 0.5, min_size: int = 10) -> list[Tensor]:
    """For each class, shares ~ Dir(alpha) over the clients (Yurochkin et al. 2019).

    Small alpha: few classes per client; large alpha: close to iid.  Drawn again, under the next counter, until
    every client has `min_size` samples.
    """
    if not (_is_number(alpha) and 0 < alpha <= 1e6):
        raise ConfigError(f"alpha must be above 0 and at most 1e6, not {alpha}.")
    _check_whole("min_size", min_size)
    if num_clients * min_size > len(targets):
        raise ConfigError(
            f"{num_clients} clients with at least {min_size} samples each need more than the {len(targets)} there are; "
            "take fewer clients or a smaller min_size."
        )
    classes = _samples_by_class(targets, seed)
    ends = _dirichlet_ends(np.array([len(samples) for samples in classes]), num_clients, seed, alpha, min_size)
    by_class = [samples.tensor_split(cut[:-1].tolist()) for samples, cut in zip(classes, ends, strict=True)]
    return [torch.cat(shares) for shares in zip(*by_class, strict=True)]


def _dirichlet_ends(
    class_sizes: NDArray[np.int64], num_clients: int, seed: int, alpha: float, min_size: int
) -> NDArray[np.int64]:
    """(classes, clients): where each client's share of each class ends."""
    for draw in data_key(seed, Purpose.PARTITION, _DRAW, torch.arange(_MOST_DRAWS)).tolist():
        generator = np.random.default_rng(draw % 2**64)  # keys are signed, seeds are not
        shares = generator.dirichlet(np.full(num_clients, alpha), size=len(class_sizes))
        ends = (shares.cumsum(axis=1) * class_sizes[:, None]).astype(np.int64)
        ends[:, -1] = class_sizes  # whatever the rounding of the sum
        if np.diff(ends, axis=1, prepend=0).sum(axis=0).min() >= min_size:
            return ends
    raise ConfigError(
        f"in {_MOST_DRAWS} draws of Dirichlet({alpha}) some client always had fewer than {min_size} samples; "
        "take a larger alpha, fewer clients or a smaller min_size."
    )


def shards(targets: Tensor, num_clients: int, seed: int, classes_per_client: int = 2) -> list[Tensor]:
    """Exactly `classes_per_client` classes for each client, from shards of a single class (after McMahan et al. 2017).

    McMahan's shards are equal cuts of the samples sorted by label, and a cut may straddle two labels.  Here every
    class is cut on its own, into a number of shards that follows its size, so that the count of classes is exact.
    """
    _check_whole("classes_per_client", classes_per_client)
    classes = _samples_by_class(targets, seed)
    if classes_per_client > len(classes):
        raise ConfigError(f"classes_per_client is {classes_per_client}, but there are only {len(classes)} classes.")
    if num_clients * classes_per_client < len(classes):
        raise ConfigError(
            f"{num_clients} clients with {classes_per_client} classes each cannot hold all {len(classes)} classes; "
            "take more clients or more classes per client."
        )
    shard_counts = _shard_counts([len(samples) for samples in classes], num_clients, num_clients * classes_per_client)
    hands: list[list[Tensor]] = [[] for _ in range(num_clients)]
    deals = data_key(seed, Purpose.PARTITION, _DEAL, torch.arange(len(classes)))
    for samples, count, deal in zip(classes, shard_counts, deals, strict=True):
        # Whoever has the smallest hand is served first, in random order: hands never differ by more than one shard,
        # so that the last class still finds as many clients with room as it has shards.
        clients = sorted(rng.permutation(deal, num_clients).tolist(), key=lambda client: len(hands[client]))
        for client, shard in zip(clients, samples.tensor_split(count), strict=False):
            hands[client].append(shard)
    return [torch.cat(hand) for hand in hands]


def _shard_counts(class_sizes: list[int], num_clients: int, total: int) -> list[int]:
    """How many shards each class is cut into: `total` together, none empty, at most one per client."""
    counts = [1] * len(class_sizes)
    for _ in range(total - len(counts)):
        sizes = [
            size / count if count < min(size, num_clients) else 0
            for size, count in zip(class_sizes, counts, strict=True)
        ]
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        if not sizes[largest]:
            raise ConfigError(
                f"the classes have too few samples for {total} shards of a single class; "
                "take fewer clients or fewer classes per client."
            )
        counts[largest] += 1
    return counts


def label_histogram(targets: Tensor, parts: list[Tensor], num_classes: int) -> Tensor:
    """(clients, classes): how many samples of each class each client has."""
    return torch.stack([torch.bincount(targets[part], minlength=num_classes) for part in parts])


def _samples_by_class(targets: Tensor, seed: int) -> list[Tensor]:
    """The samples of each class that occurs, in random order: which client gets which must not follow the file."""
    order = rng.permutation(data_key(seed, Purpose.PARTITION, _ORDER), len(targets))
    return [order[targets[order] == label] for label in targets.bincount().nonzero()]


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, not {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


PARTITIONS: dict[str, Callable[..., list[Tensor]]] = {"iid": iid, "dirichlet": dirichlet, "shards": shards}
