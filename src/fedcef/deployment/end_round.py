"""How a round ends: from accepted messages to the down-message and everyone's next state.

The same order and arithmetic as the simulator's, so that replicas are equal bit for bit.  Nothing is read or written
here: the server runs it once when a round closes, and again when it recovers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.algorithms.aggregating import own_state
from fedcef.algorithms.algorithm import Message, State
from fedcef.core.errors import DivergedError
from fedcef.core.threads import single_thread
from fedcef.deployment.messages import Result
from fedcef.deployment.protocol import Protocol
from fedcef.simulation.ledger import Ledger, Sizes
from fedcef.wire import (
    Contexts,
    Dense,
    FrameKind,
    Payload,
    WireError,
    decode,
    encode,
    frame_nbytes,
    frame_paper_nbytes,
)


@dataclass(frozen=True, eq=False)
class AcceptedReply:
    """A client's reply that is to enter the mean."""

    reply: bytes
    """As it came."""
    result: Result
    """What it says."""
    message: Message
    """The up-message in it."""

    @property
    def client(self) -> int:
        """Whose it is."""
        return self.result.client


@dataclass(frozen=True, eq=False)
class EndedRound:
    """The end of a round."""

    frame: bytes
    """The down-message, as it is logged."""
    down: Message
    replica: State
    """What everyone has after the round."""
    server: State
    """What the server alone has after it."""


def end_round(
    protocol: Protocol,
    number: int,
    replica: State,
    server: State,
    accepted: Sequence[AcceptedReply],
    lost: Mapping[int, Mapping[str, Tensor]],
    contexts: Contexts,
    total: Mapping[str, Payload] | None = None,
) -> EndedRound:
    """End a round with these replies, sorted by client; the contexts are the replica's.

    Under secure aggregation `total` has the sums of their messages, which are masked and not looked at.

    `lost` has, for clients that began afresh, all that they had sent before: it is taken out of their messages, as if
    each had moved its old state to the new one.  So the sums that everyone holds stay the means of the clients' states.
    """
    round_ = protocol.rounds.at(number, torch.tensor([one.client for one in accepted]))
    parts: dict[str, list[Payload]] = {name: [] for name in accepted[0].message}
    for one in accepted:
        gone = lost.get(one.client, {})
        for name, payload in one.message.items():
            parts[name].append(Dense(payload.dense() - gone[name]) if name in gone else payload)
    samples = torch.tensor([one.result.samples for one in accepted]).to(protocol.z0.dtype)
    weights = samples if protocol.settings.weighting == "samples" else None
    with torch.no_grad(), single_thread(when=protocol.is_small):
        received, kept = protocol.aggregator.received(total or parts, round_, server, weights)
        down, server = round_.scheduled(protocol.algorithm).server_step(own_state(server), replica, received)
        server = {**server, **kept}
        try:
            frame = encode(down, FrameKind.DOWN, number, contexts)
        except WireError as error:
            raise DivergedError(f"Round {number} cannot be told to the clients: {error}  {_ADVICE}") from None
        replica = protocol.advance(replica, decode(frame, contexts=contexts))
    if not all(bool(vector.isfinite().all()) for vector in (*replica.values(), *server.values())):
        raise DivergedError(f"Round {number} left values that are not finite numbers.  {_ADVICE}")
    return EndedRound(frame, down, replica, server)


def count(
    ledger: Ledger, accepted: Sequence[AcceptedReply], ended: EndedRound, listeners: Sequence[int], alone: bool
) -> Ledger:
    """The ledger after a round, by the simulator's rules; `listeners` are those who hear of it before the next one."""
    who = torch.tensor(listeners, dtype=torch.int64)
    away = ledger.anyone_away(who)
    up = torch.tensor([len(one.result.frame) for one in accepted])
    wire = Sizes.of(frame_nbytes, up, torch.tensor(len(ended.frame)), ended.replica, away, alone)
    up = torch.stack([frame_paper_nbytes(one.message) for one in accepted])
    paper = Sizes.of(frame_paper_nbytes, up, frame_paper_nbytes(ended.down), ended.replica, away, alone)
    return ledger.add(wire, paper, who)


_ADVICE = "Try a smaller local_lr, gradient clipping (clip_norm) or fewer local_steps."
