"""Differential privacy of what clients send: its settings, who can have it, and what it costs (docs/privacy.md).

A client that has sent T messages, each a Gaussian mechanism of sensitivity 2S and standard deviation σS that may depend
on all before it, has given away as much as by one mechanism with σS/√T.  For that one (ε, δ) is known exactly (Balle,
Wang 2018, arXiv 1805.06530); Google's dp-accounting computes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm
from fedcef.algorithms.noisy_sums import noisy
from fedcef.compressors import Compressor
from fedcef.compressors.grid import Grid
from fedcef.compressors.private import Private
from fedcef.core.errors import ConfigError
from fedcef.core.extras import install_extra
from fedcef.core.ranges import Positive
from fedcef.core.rng import Key
from fedcef.core.round import rehearsal_key
from fedcef.wire import Dense, Payload


class Privacy(BaseModel):
    """The section `[privacy]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clip: Positive
    """S: the largest norm of what a client sends in a round, before the noise."""
    noise: Positive
    """σ: the standard deviation of the noise in every entry, in units of clip."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """δ, for which ε is computed."""
    added_by: Literal["client", "server"] = "client"
    """Who adds the noise: every client to its own message, or the server once to their sum, which needs [secure] and
    protects against all but the server."""

    def protect(self, name: str, algorithm: Algorithm, z0: Tensor, weighting: str, budget: int) -> Algorithm:
        """The method with private messages; refused where these would not be all that a client gives away."""
        _accountant()
        if not (algorithm.compresses and sends_only_what_it_compresses(algorithm, z0)):
            able = ", ".join(other for other, kind in ALGORITHMS.items() if kind.compresses)
            raise ConfigError(
                f"[privacy] covers what goes through a compressor, and {name} sends more than that; "
                f"take one of {able}, or leave [privacy] out."
            )
        if weighting == "samples":
            raise ConfigError(
                "[privacy] hides how many samples a client has; take weighting = 'uniform', or leave [privacy] out."
            )
        if budget:
            raise ConfigError("A budget is not planned with noise in the messages; leave budget or [privacy] out.")
        secure = isinstance(algorithm.compressor, Grid)
        if secure != (self.added_by == "server"):
            raise ConfigError(
                "Noise that the server adds goes with [secure], under which it has a sum of bounded messages, and each "
                "client's own noise goes without; set privacy.added_by = 'server' and [secure], or neither."
            )
        if isinstance(algorithm.compressor, Grid):
            clipped = replace(algorithm.compressor, clip=self.clip)
            return noisy(replace(algorithm, compressor=clipped), self.noise * clipped.stretched(len(z0)))
        return replace(algorithm, compressor=Private(inner=algorithm.compressor, clip=self.clip, noise=self.noise))

    def spent(self, messages: int) -> dict[str, float]:
        """ε and δ of a client that has sent so many messages, for a summary."""
        return {"epsilon": epsilon(self.noise, messages, self.delta), "delta": self.delta}


def epsilon(noise: float, messages: int, delta: float) -> float:
    """ε of so many messages if all of a client's data may be replaced: sensitivity 2S, standard deviation noise·S."""
    accountant = _accountant()
    return float(accountant.get_epsilon_gaussian(noise / 2 / math.sqrt(messages), delta)) if messages else 0.0


def sends_only_what_it_compresses(algorithm: Algorithm, z0: Tensor) -> bool:
    """Whether a message is one vector that the compressor made, found by a rehearsal without data."""
    witness = _Witness()
    rehearsal = replace(algorithm, local_steps=1, compressor=witness)
    key = rehearsal_key(torch.zeros((), dtype=torch.int64, device=z0.device))
    with torch.no_grad():
        up, _ = rehearsal.local(
            rehearsal.replica_init(z0), rehearsal.client_init(z0), lambda x, k: torch.zeros_like(x), key
        )
    return len(witness.made) == 1 and all(payload is witness.made[0] for payload in up.values())


@dataclass(frozen=True, eq=False)
class _Witness(Compressor):
    """Compresses nothing and remembers what it made."""

    made: list[Payload] = field(default_factory=list)

    def compress(self, x: Tensor, key: Key) -> Payload:
        self.made.append(Dense(x))
        return self.made[-1]

    def contraction(self, dim: int) -> float:
        return 0.0


def _accountant() -> Any:
    try:
        return import_module("dp_accounting")
    except ImportError:
        raise ConfigError(
            f"[privacy] needs dp-accounting to say what it is worth; install it with: {install_extra('privacy')}"
        ) from None
