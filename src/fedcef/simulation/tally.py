"""How many clients have how much of the log of down-messages.

Marks are places between two messages, at most one for each round, so that a sum over all clients is one over places:
what it costs does not depend on how many clients there are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Tally(NamedTuple):
    """A value: moving clients gives another one."""

    places: Tensor
    """Where clients are, ascending: (R,)."""
    clients: Tensor
    """How many there are at each place: (R,)."""

    @classmethod
    def of(cls, marks: Tensor, at_the_start: int) -> Tally:
        """That of clients with these marks, and of so many others that have nothing."""
        places, clients = torch.cat([marks.new_zeros(1), marks]).unique(return_counts=True)  # type: ignore[no-untyped-call]
        clients[0] += at_the_start - 1
        return cls(places, clients)

    def moved(self, marks: Tensor, to: Tensor) -> Tally:
        """The tally once clients with these marks are at a place that is beyond all others, or the last of them."""
        left = self.clients.index_add(0, torch.searchsorted(self.places, marks), torch.full_like(marks, -1))
        here = left > 0
        places, clients = self.places[here], left[here]
        if len(places) and int(places[-1]) == int(to):
            clients[-1] += len(marks)
            return Tally(places, clients)
        return Tally(torch.cat([places, to.view(1)]), torch.cat([clients, clients.new_tensor([len(marks)])]))

    def missed(self, log: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Sum and norm of what all clients miss of a log of this length, none more than `most`: two numbers, ().

        Both are those of the vector (N,) to the last bit while its squares add up to less than 2⁵³.
        """
        missed = (log - self.places).clamp(max=most).double()
        return (self.clients * missed).sum(), (self.clients * missed.square()).sum().sqrt()
