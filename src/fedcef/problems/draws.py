"""Which samples minibatches are made of, without replacement: a client goes through its samples in a random order, then
in another.

The orders are those of a Fisher-Yates shuffle, so all are equally likely, and only the places that a round comes to are
computed: the work follows the number of draws, not the number of samples, and clients of any size share one shape.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError


def epochs(keys: Tensor, sizes: Tensor, count: int) -> Tensor:
    """`count` samples of every client, by their own numbers, epoch after epoch: (S,), (S,) -> (S, count).

    At place i the shuffle swaps what lies there with what lies at a place chosen from i to the end of the epoch, and
    then never looks at place i again.  What place q holds by then was put there by the last earlier swap that chose q,
    if any, and came from that swap's own place, which an earlier swap may have chosen: a chain, followed to its first
    swap by doubling.
    """
    size, places = sizes.unsqueeze(-1), torch.arange(count, device=keys.device).expand(len(keys), -1)
    ends = (places // size + 1) * size
    chosen = places + rng.bits(keys, count) % (ends - places)
    swaps = (chosen * count + places).sort(-1).values  # by the chosen place, then in order

    def last_choice(of: Tensor) -> tuple[Tensor, Tensor]:
        """The last swap before each place that chose the given one, and whether there is any."""
        before = torch.searchsorted(swaps, of * count + places) - 1
        swap = swaps.gather(-1, before.clamp(min=0))
        return swap % count, (before >= 0) & (swap // count == of)

    swap, exists = last_choice(places)
    origin = torch.where(exists, swap, places)
    for _ in range(count.bit_length()):
        origin = origin.gather(-1, origin)
    swap, exists = last_choice(chosen)
    return torch.where(exists, origin.gather(-1, swap), chosen) % size


def steps_of_epochs(sizes: Tensor, batch_size: int, epochs: int = 1) -> int:
    """How many local steps lead through the samples of every client so many times: ⌈epochs · n / batch_size⌉.

    >>> FedAvg(local_lr=0.1, local_steps=steps_of_epochs(problem.sizes, batch_size=10))
    """
    low, high = (int(size) for size in sizes.aminmax())
    if low != high:
        raise ConfigError(
            f"The clients have between {low} and {high} samples but take equally many steps, which cannot be whole "
            "epochs for all of them; choose local_steps yourself."
        )
    if batch_size < 1 or epochs < 1:
        raise ConfigError(f"Epochs need a batch_size and a number of 1 or more; got {batch_size} and {epochs}.")
    return -(-epochs * high // batch_size)
