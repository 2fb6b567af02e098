"""What the ledger counts on a network besides whole rounds: hand-outs between them, and replies cut off."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.simulation.ledger import Ledger, Sizes
from fedcef.wire import frame_nbytes, frame_paper_nbytes


def handed_out(ledger: Ledger, replica: State, clients: Tensor) -> tuple[Ledger, Tensor]:
    """The ledger once these clients have the replica, and what each is sent for it, (S,).

    Nobody was away for that: they get it because it is their turn, and nothing of it counts as catch-up.
    """
    nothing = torch.zeros((), dtype=torch.int64, device=clients.device)
    wire, paper = (
        Sizes.of(count, nothing, nothing, replica, anyone_away=True) for count in (frame_nbytes, frame_paper_nbytes)
    )
    after = ledger.add(wire, paper, clients)
    uncounted = (
        replace(now, catch_up=before.catch_up)
        for before, now in ((ledger.wire, after.wire), (ledger.paper, after.paper))
    )
    return Ledger(*uncounted), ledger.wire.due(wire, clients)


def with_more_up(ledger: Ledger, wire: Tensor, paper: Tensor) -> Ledger:
    """The ledger with so many more bytes that went up, by its two counts."""
    return Ledger(
        replace(ledger.wire, up=ledger.wire.up + wire.sum().to(ledger.wire.up.device)),
        replace(ledger.paper, up=ledger.paper.up + paper.sum().to(ledger.paper.up.device)),
    )
