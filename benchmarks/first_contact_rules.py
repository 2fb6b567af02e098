"""What FedCEF could do about clients that it has not seen before: the rules that first_contact.py compares.

FedCEF's default rule is known_i = κ c + ω c_i with c_i the sum of all Δ_i that i has sent, κ = 1 - ω s/η, and
c ← c + η mean Δ_i (docs/algorithms.md, section 3.3).  As c moves by η mean Δ_i and the mean of the c_i by s mean Δ_i,
c = (η/s) mean c_i, and so c = mean known_i.  That c_i is a sum of what was sent is all that this takes:

* `DenserFirst` sends more at first contact, and adds up what it sends: c = mean known_i.
* `FromC` takes known_i = c at first contact, as c_i = (s/η) c would have it: no drift correction then, and Δ_i is a
  difference to c.  If c_i becomes Δ_i, c = mean known_i.  If it becomes (s/η) c + Δ_i (`stays`), the mean of known_i
  is ω (s/η) c/N ahead of c for each client met, for good: where all known_i are ∇f_i, c is not ∇f.
* `OwnGradient` keeps what of its gradient the server does not know, u_i = ḡ_i - known_i, and corrects its steps by
  c - known_i - u_i.  The server does not notice, so c = mean known_i, and where nothing is left to send u_i = 0.  If
  c_i becomes all of the first gradient, though only C of it was sent (`instead`), c misses ω/N of what C left out.
* `WarmMixing` has an η_t of its own in every round.  Then κ differs from round to round and acts on what is added:
  known_i = b + ω c_i with b ← b + (1 - ω s/η_t)·(change of c).  c and the mean of known_i both move by η_t mean Δ_i.
* `DenserStart` and `WarmStep` send more, or step less far, in the first rounds; neither touches what is known.

With all clients in every round each is FedCEF, but for the last two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor

from fedcef.algorithms import FedCEF
from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.compressors import Compressor
from fedcef.core.ranges import Count, Positive
from fedcef.core.rng import Key
from fedcef.wire import Payload, as_stack

Kind = TypeVar("Kind", bound=FedCEF)


def as_kind(kind: type[Kind], method: FedCEF, **options: Any) -> Kind:
    """A method of this kind with the options of another, and its own."""
    return kind(**{f.name: getattr(method, f.name) for f in fields(FedCEF)}, **options)


def denser(compressor: Compressor, times: float) -> Compressor:
    """A sparsifier that keeps so many times as much, at most everything."""
    return replace(compressor, ratio=min(1.0, times * compressor.ratio))  # type: ignore[type-var, attr-defined]


def is_new(client: State) -> Tensor:
    """Whether a client has not sent anything yet, (..., 1)."""
    return (client["c_i"] == 0).all(-1, keepdim=True)


@dataclass(frozen=True)
class ByContact(Compressor):
    """One compressor for clients that are new, and another for the rest."""

    usual: Compressor
    first: Compressor
    new: Tensor  # (..., 1)

    def compress(self, x: Tensor, key: Key) -> Payload:
        """A payload of its own for each client, as lengths differ."""
        if x.ndim == 1:
            return (self.first if bool(self.new) else self.usual).compress(x, key)
        each = zip(x, self.new.flatten().tolist(), key.own, strict=True)
        return as_stack(
            [(self.first if new else self.usual).compress(row, Key(key.shared, own)) for row, new, own in each]
        )

    def contraction(self, dim: int) -> float | None:
        """That of the usual one, which keeps less."""
        return self.usual.contraction(dim)


@dataclass(frozen=True, kw_only=True, eq=False)
class DenserFirst(FedCEF):
    """A client's first message keeps more entries."""

    times: Positive = 5.0
    """m: how many times as many."""

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        if not self.is_shared:
            return super().local(replica, client, oracle, key)
        either = ByContact(self.compressor, denser(self.compressor, self.times), is_new(client))
        return FedCEF.local(replace(self, compressor=either), replica, client, oracle, key)


@dataclass(frozen=True, kw_only=True, eq=False)
class Shifted(FedCEF):
    """A kind of FedCEF that works as if c_i were another vector."""

    def shift(self, replica: State, client: State) -> Vector:
        """What is added to c_i while a client works."""
        raise NotImplementedError

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        if not self.is_shared:
            return super().local(replica, client, oracle, key)
        by = self.shift(replica, client)
        up, after = super().local(replica, {**client, "c_i": client["c_i"] + by}, oracle, key)
        return up, {**after, "c_i": after["c_i"] - by}


@dataclass(frozen=True, kw_only=True, eq=False)
class FromC(Shifted):
    """known_i = c at first contact."""

    stays: bool = False
    """Whether c_i keeps what it was begun with; then c is not the mean of known_i."""

    def shift(self, replica: State, client: State) -> Vector:
        return is_new(client) * (self.share / self.mixing * replica["c"])

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        up, after = super().local(replica, client, oracle, key)
        if self.stays and self.is_shared:
            after = {**after, "c_i": after["c_i"] + self.shift(replica, client)}
        return up, after


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnGradient(FedCEF):
    """A client's steps are corrected by what it knows of its own gradient, not by what the server knows of it."""

    how: Literal["once", "always", "instead"] = "once"
    """From the first gradient at the second visit; from the last one at every visit; or the first gradient becomes c_i,
    and c is not the mean of known_i."""

    def client_init(self, z0: Vector) -> State:
        rest = {"rest": z0.new_zeros(z0.shape)} if self.is_shared and self.how != "instead" else {}
        return {**super().client_init(z0), **rest}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        if not self.is_shared:
            return super().local(replica, client, oracle, key)
        c, c_i, new = replica["c"], client["c_i"], is_new(client)
        known = self.known(c, c_i)
        drift = c - known - client["rest"] if "rest" in client else c - known
        _, g_mean, _ = corrected_steps(self, replica["z"], drift, oracle, self.regularizer)
        delta = self.compressor.compress(g_mean - known, key)
        if self.how == "instead":
            return {"delta": delta}, {"c_i": c_i + torch.where(new, g_mean - known, delta.dense())}
        c_i = c_i + delta.dense()
        rest = g_mean - self.known(c, c_i)
        return {"delta": delta}, {"c_i": c_i, "rest": rest if self.how == "always" else new * rest}


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmMixing(Shifted):
    """c is at first the mean of all cohorts so far, as η_t = max(η, a/(t + a)).

    ω is at most η/s, and the downlink any but `snapshot`.
    """

    slow: Positive = 1.0
    """a: about how many rounds it takes until η_t is half of what it was."""

    def in_round(self, number: Tensor) -> Self:
        mixing = max(self.mixing, self.slow / (int(number) + self.slow))
        return replace(super().in_round(number), mixing=mixing if self.is_shared else self.mixing)

    def replica_init(self, z0: Vector) -> State:
        return {**super().replica_init(z0), **({"b": z0.new_zeros(z0.shape)} if self.is_shared else {})}

    @property
    def kept(self) -> float:
        """κ of this round."""
        return 1 - self.own_part * self.share / self.mixing

    def shift(self, replica: State, client: State) -> Vector:
        return (replica["b"] - self.kept * replica["c"]) / self.own_part

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        if not (self.is_shared and server):
            return super().server_step(server, replica, received)
        by = self.shift(replica, {})
        down, after = super().server_step({"c": server["c"] + by}, replica, received)
        return down, {"c": after["c"] - by}

    def advance(self, replica: State, down: Message) -> State:
        after = super().advance(replica, down)
        if not self.is_shared:
            return after
        return {**after, "b": replica["b"] + self.kept * (after["c"] - replica["c"])}

    def diagnostics(self, replica: State, mean: State) -> dict[str, Tensor]:
        if not self.is_shared:
            return super().diagnostics(replica, mean)
        return {"control_gap": (replica["c"] - replica["b"] - self.own_part * mean["c_i"]).norm()}


@dataclass(frozen=True, kw_only=True, eq=False)
class DenserStart(FedCEF):
    """All messages of the first rounds keep more entries."""

    times: Positive = 5.0
    """m: how many times as many."""
    rounds: Count = 10
    """How many rounds are the first ones."""
    both_ways: bool = False
    """Whether those of the server do, too."""

    def in_round(self, number: Tensor) -> Self:
        method = super().in_round(number)
        if int(number) >= self.rounds:
            return method
        down = {"down_compressor": denser(self.down_compressor, self.times)} if self.both_ways else {}
        return replace(method, compressor=denser(self.compressor, self.times), **down)


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmStep(FedCEF):
    """The server's step grows to its length over the first rounds."""

    rounds: Count = 10
    """In how many."""

    def in_round(self, number: Tensor) -> Self:
        return replace(super().in_round(number), server_lr=self.server_lr * min(1.0, (int(number) + 1) / self.rounds))
