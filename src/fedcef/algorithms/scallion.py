"""SCALLION: SCAFFOLD with unbiased compression.

Huang, Li, Li (ICLR 2024, arXiv 2308.08165), reconstructed.  Local steps and server as in compressed_control.py;
with ḡ_i the mean of a client's K gradients and a = scaling,

    Δ_i = C(a (ḡ_i - c_i));   c_i ← c_i + Δ_i

The authors write ḡ_i - c_i as (z - x)/(αK) - c, which is the same number with fewer digits.  For an unbiased C with
E|C(x) - x|² <= ω|x|² take a <= 1/(1+ω), which for Rand-k scaled by p/k is k/p: there it is SCAFCOM with η = 1 and plain
Rand-k.  Above it the c_i overshoot, which asks for shorter steps, and from 2k/p on they diverge.  A contractive C works
with any a; less than 1 only slows it down.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.algorithm import Message, Oracle, State
from fedcef.algorithms.compressed_control import CompressedControl
from fedcef.core.ranges import Fraction
from fedcef.core.rng import Key


@dataclass(frozen=True, kw_only=True, eq=False)
class SCALLION(CompressedControl):
    """Control variates whose increments are compressed without bias."""

    scaling: Fraction = 0.1
    """a: how much of the difference to the control variate is sent."""

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        c_i = client["c_i"]
        g_mean = self.gradient(replica, client, oracle)
        delta = self.compressor.compress(self.scaling * (g_mean - c_i), key)
        return {"delta": delta}, {"c_i": c_i + delta.dense()}
