"""The replies of one round: which are taken, and what is said of the others.

Everything about a reply is checked before it can enter the mean: who sent it, to which run and round it belongs, that
it is the first, that client and server worked from the same replica and state, and that its vectors are as expected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from fedcef.algorithms.algorithm import Message
from fedcef.deployment.checks import Unusable
from fedcef.deployment.end_round import AcceptedReply
from fedcef.deployment.messages import MessageError, Need, Refusal, Result, decode_reply
from fedcef.deployment.server_state import ServerState

ABOUT_ANOTHER = frozenset({"late", "another run", "another round", "another client's"})
"""Reasons that say nothing about this round's reply, which may still come."""
HELPED_BY_ASKING = frozenset({"unreadable", "behind", "another replica", "client failed"})
"""Reasons after which the same client may do better."""


@dataclass(frozen=True)
class Verdict:
    """What became of a reply."""

    accepted: bool
    reason: str = ""  # one of a few, which are counted
    detail: str = ""
    order: bytes | None = None  # to be sent to this client now


@dataclass
class OpenRound:
    """A round that has begun and not ended."""

    opened: float
    began: float  # the last attempt
    cohort: set[int] = field(default_factory=set)
    attempt: int = 0
    accepted: dict[int, AcceptedReply] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    again: Counter[int] = field(default_factory=Counter)  # unusable replies, by client
    refused: Counter[str] = field(default_factory=Counter)
    enough_since: float | None = None  # when the quorum was there
    why: dict[int, str] = field(default_factory=dict)  # what those say that were given up in this attempt

    @property
    def everyone_answered(self) -> bool:
        """Whether no reply is to be expected any more."""
        return self.cohort <= self.accepted.keys() | self.given_up

    @property
    def waited_for(self) -> set[int]:
        """The clients whose reply would be taken."""
        return self.cohort - self.accepted.keys()


def examine(state: ServerState, open_: OpenRound | None, client: int | None, data: bytes, limit: int) -> AcceptedReply:
    """A reply that may enter the mean; anything else raises Unusable.

    What a reply tells of a client's replica is kept in `state.have` even if the reply itself is of no use.
    """
    if client is None:
        raise Unusable("unknown client", "Nobody of this name is enrolled.")
    result = _result(state, open_, client, data, limit)
    if result.replica != state.replica_hash:
        state.have[client] = None
        raise Unusable("another replica", "The work was done from a replica that is not the server's.")
    last = state.last[client]
    if result.base != last and result.base is not None:
        raise Unusable("another state", f"The work began with another state, of round {result.base.round}.")
    if result.base != last and state.protocol.adds_up is None:
        raise Unusable("lost state", f"{state.protocol.settings.algorithm['name']} cannot do without a client's state.")
    if not 1 <= result.samples < 2**53:
        raise Unusable("other vectors", f"The client claims {result.samples} samples.")
    message = state.checked(result)
    state.have[client] = state.round
    return AcceptedReply(data, result, message)


def _result(state: ServerState, open_: OpenRound | None, client: int, data: bytes, limit: int) -> Result:
    """A result of this run, this round and this client, and the first."""
    try:
        reply = decode_reply(data, limit)
    except MessageError as error:
        raise Unusable("unreadable", str(error)) from None
    if reply.run != state.run:
        raise Unusable("another run", f"The reply is of run {reply.run}.")
    if reply.client != client:
        raise Unusable("another client's", f"The reply is client {reply.client}'s.")
    if open_ is None or reply.round != state.round:
        reason = "late" if reply.round < state.round else "another round"
        raise Unusable(reason, f"The reply is of round {reply.round}.")
    if client not in open_.cohort:
        raise Unusable("not asked", f"Client {client} is not in the cohort.")
    if client in open_.accepted:
        raise Unusable("duplicate", "A reply of this round was accepted before.")
    if isinstance(reply, Need):
        state.have[client] = reply.have if reply.have is not None and reply.have <= state.round else None
        raise Unusable("behind", f"The client has seen {reply.have} rounds.")
    if isinstance(reply, Refusal):
        raise Unusable("client refused", reply.reason)
    return reply


def outliers(
    accepted: Mapping[int, AcceptedReply], factor: float, largest_median: float, weighted: bool
) -> tuple[dict[int, str], float]:
    """The clients whose messages are far larger than usual, and why; and the largest median of any cohort so far.

    Nobody may exceed the factor times the largest median of the rounds before, so that a bad majority cannot make
    itself the measure.  Of three or more who are left, those who go on may not exceed it times their median either;
    who begins afresh sends more than they, late in a run far more.
    """
    norms = {client: _norm(one.message) for client, one in accepted.items()}
    samples = {client: float(one.result.samples) for client, one in accepted.items()} if weighted else {}
    if not factor:
        return {}, max(largest_median, _median(norms))
    far = {c: _too_large("norm", norms[c], largest_median) for c in norms if 0 < factor * largest_median < norms[c]}
    norms = {client: norm for client, norm in norms.items() if client not in far}
    if len(norms) < 3:
        return far, largest_median
    middle = _median(norms)
    going_on = {client for client in norms if accepted[client].result.base is not None}
    limits = {client: middle if client in going_on else max(middle, largest_median) for client in norms}
    far |= {c: _too_large("norm", norms[c], limits[c]) for c in norms if 0 < factor * limits[c] < norms[c]}
    usual = _median(samples)
    far |= {c: _too_large("number of samples", n, usual) for c, n in samples.items() if n > factor * usual}
    return far, max(largest_median, middle)


def _too_large(what: str, size: float, usual: float) -> str:
    return f"The {what} is {size:g}; {usual:g} is usual."


def _norm(message: Message) -> float:
    """The norm of all vectors of a message together."""
    norms = (torch.linalg.vector_norm(payload.dense(), dtype=torch.float64) for payload in message.values())
    return math.hypot(*map(float, norms))


def _median(sizes: Mapping[int, float]) -> float:
    """The lower median."""
    ordered = sorted(sizes.values())
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0
