"""Clients that differ in their labels, or in nothing: iid, dirichlet, shards."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Purpose, data_key
from fedcef.problems.data.partitions.deal import (
    Deal,
    Draw,
    check_number,
    check_room,
    check_whole,
    equal_sizes,
    samples_by_class,
)

_MOST_DRAWS = 1000
_FIRST_DRAWS, _TOO_MANY = 20, 20


def iid(targets: Tensor, num_clients: int, seed: int) -> Deal:
    """Equal shares of a random order; sizes differ by one at most."""
    order = rng.permutation(data_key(seed, Purpose.PARTITION, Draw.DEAL), len(targets))
    return Deal(order, equal_sizes(len(targets), num_clients))


def dirichlet(targets: Tensor, num_clients: int, seed: int, alpha: float = 0.5, min_size: int = 10) -> Deal:
    """For each class, shares ~ Dir(alpha) over the clients (Yurochkin et al. 2019).

    Small alpha: few classes per client; large alpha: close to iid.  Drawn again, under the next counter, until
    every client has `min_size` samples.
    """
    check_number("alpha", alpha)
    check_room(num_clients, min_size, len(targets))
    samples, class_sizes = samples_by_class(targets, seed)
    ends = _dirichlet_ends(class_sizes.numpy(), num_clients, seed, alpha, min_size)
    shares = torch.from_numpy(np.diff(ends, axis=1, prepend=0)).flatten()
    owners = torch.arange(num_clients).repeat(len(class_sizes)).repeat_interleave(shares)
    return Deal.to_owners(samples, owners, num_clients)


def _dirichlet_ends(
    class_sizes: NDArray[np.int64], num_clients: int, seed: int, alpha: float, min_size: int
) -> NDArray[np.int64]:
    """(classes, clients): where each client's share of each class ends."""
    draws = data_key(seed, Purpose.PARTITION, Draw.SHARES, torch.arange(_MOST_DRAWS)).tolist()
    all_small = 0
    for number, draw in enumerate(draws, start=1):
        generator = np.random.default_rng(draw % 2**64)  # keys are signed, seeds are not
        shares = generator.dirichlet(np.full(num_clients, alpha), size=len(class_sizes))
        ends = (shares.cumsum(axis=1) * class_sizes[:, None]).astype(np.int64)
        ends[:, -1] = class_sizes  # whatever the rounding of the sum
        small = int((np.diff(ends, axis=1, prepend=0).sum(axis=0) < min_size).sum())
        if not small:
            return ends
        all_small += small
        # About Poisson: where n clients are too small on average, one draw in e^n has none.
        if number <= _FIRST_DRAWS and all_small > _TOO_MANY * _FIRST_DRAWS:
            break
    raise ConfigError(
        f"in {number} draw{'s' * (number > 1)} of Dirichlet({alpha}) some client always had fewer than {min_size} "
        f"sample{'s' * (min_size > 1)}, in the last one {small} of {num_clients} clients; take a larger alpha, fewer "
        "clients or a smaller min_size, or partition lognormal with labels = 'dirichlet', which gives any number of "
        "clients their sizes."
    )


def shards(targets: Tensor, num_clients: int, seed: int, classes_per_client: int = 2) -> Deal:
    """Exactly `classes_per_client` classes for each client, from shards of a single class (after McMahan et al. 2017).

    McMahan's shards are equal cuts of the samples sorted by label, and a cut may straddle two labels.  Here every
    class is cut on its own, into a number of shards that follows its size, so that the count of classes is exact.
    """
    check_whole("classes_per_client", classes_per_client)
    samples, class_sizes = samples_by_class(targets, seed)
    if classes_per_client > len(class_sizes):
        raise ConfigError(f"classes_per_client is {classes_per_client}, but there are only {len(class_sizes)} classes.")
    if num_clients * classes_per_client < len(class_sizes):
        raise ConfigError(
            f"{num_clients} clients with {classes_per_client} classes each cannot hold all {len(class_sizes)} classes; "
            "take more clients or more classes per client."
        )
    shard_counts = _shard_counts(class_sizes.numpy(), num_clients, num_clients * classes_per_client)
    hands = torch.zeros(num_clients, dtype=torch.int64)
    owners = []
    deals = data_key(seed, Purpose.PARTITION, Draw.DEAL, torch.arange(len(class_sizes)))
    for size, count, deal in zip(class_sizes.tolist(), shard_counts, deals, strict=True):
        # Whoever has the smallest hand is served first, in random order: hands never differ by more than one shard,
        # so that the last class still finds as many clients with room as it has shards.
        clients = rng.permutation(deal, num_clients)
        waiting = hands[clients] == hands.min()
        served = torch.cat([clients[waiting], clients[~waiting]])[:count]
        owners.append(served.repeat_interleave(equal_sizes(size, count)))
        hands[served] += 1
    return Deal.to_owners(samples, torch.cat(owners), num_clients)


def _shard_counts(class_sizes: NDArray[np.int64], num_clients: int, total: int) -> list[int]:
    """How many shards each class is cut into: `total` together, none empty, at most one per client.

    One for every class, and each further one for the class whose shards are largest then: the largest of the quotients
    size/1, size/2, … of all classes, as in d'Hondt's rule.  Of equal ones the first class's.
    """
    room = np.minimum(class_sizes, num_clients) - 1  # how many more shards each class can be cut into
    classes = np.repeat(np.arange(len(class_sizes)), room)
    divisors = np.arange(1, len(classes) + 1) - np.repeat(room.cumsum() - room, room)
    more = total - len(class_sizes)
    if more > len(classes):
        raise ConfigError(
            f"the classes have too few samples for {total} shards of a single class; "
            "take fewer clients or fewer classes per client."
        )
    largest = np.argsort(-class_sizes[classes] / divisors, kind="stable")[:more]
    return (1 + np.bincount(classes[largest], minlength=len(class_sizes))).tolist()  # type: ignore[no-any-return]
