"""How a round ends: from accepted messages to the down-message and everyone's next state.

The same order and arithmetic as the simulator's, so that replicas are equal bit for bit.  Nothing is read or written
here: the server runs it once when a round closes, and again when it recovers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.algorithms.received import Received
from fedcef.core import rng
from fedcef.core.errors import DivergedError
from fedcef.core.threads import is_small, single_thread
from fedcef.deployment.messages import Result
from fedcef.deployment.protocol import Method
from fedcef.simulation.ledger import Ledger, whole
from fedcef.wire import (
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
class Accepted:
    """A client's reply that is to enter the mean."""

    reply: bytes
    result: Result
    message: Message


@dataclass(frozen=True, eq=False)
class Settled:
    """The end of a round."""

    frame: bytes  # the down-message
    down: Message
    replica: State
    server: State


def settle(
    method: Method,
    round_: int,
    replica: State,
    server: State,
    accepted: Sequence[Accepted],
    lost: Mapping[int, Mapping[str, Tensor]],
) -> Settled:
    """End a round with these replies, sorted by client.

    `lost` has, for clients that began afresh, all that they had sent before: it is taken out of their messages, as if
    each had moved its old state to the new one.  So the sums that everyone holds stay the means of the clients' states.
    """
    algorithm = method.in_round(round_)
    parts: dict[str, list[Payload]] = {name: [] for name in accepted[0].message}
    for one in accepted:
        gone = lost.get(one.result.client, {})
        for name, payload in one.message.items():
            parts[name].append(Dense(payload.dense() - gone[name]) if name in gone else payload)
    samples = torch.tensor([one.result.samples for one in accepted]).to(method.z0.dtype)
    weights = samples if method.config.weighting == "samples" else None
    with torch.no_grad(), single_thread(when=is_small(method.num_clients * method.dim)):
        key = method.shared_key(round_, rng.SERVER)
        received = Received.of(parts, key, share=len(accepted) / method.num_clients, weights=weights)
        down, server = algorithm.server_step(server, replica, received)
        try:
            frame = encode(down, FrameKind.DOWN, round_)
        except WireError as error:
            raise DivergedError(f"Round {round_} cannot be told to the clients: {error}  {_ADVICE}") from None
        replica = method.advance(replica, decode(frame))
    if not all(bool(vector.isfinite().all()) for vector in (*replica.values(), *server.values())):
        raise DivergedError(f"Round {round_} left values that are not finite numbers.  {_ADVICE}")
    return Settled(frame, down, replica, server)


def count(ledger: Ledger, accepted: Sequence[Accepted], settled: Settled, listeners: Sequence[int]) -> None:
    """Count a round by the simulator's rules."""
    snapshot = whole(settled.replica)
    to = torch.tensor(listeners, dtype=torch.int64)
    up = torch.tensor([len(one.result.frame) for one in accepted])
    ledger.wire.add(up, torch.tensor(len(settled.frame)), frame_nbytes(snapshot), to)
    up = torch.stack([frame_paper_nbytes(one.message) for one in accepted])
    ledger.paper.add(up, frame_paper_nbytes(settled.down), frame_paper_nbytes(snapshot), to)


_ADVICE = "Try a smaller local_lr, gradient clipping (clip_norm) or fewer local_steps."
