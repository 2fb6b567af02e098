"""Differential privacy of what a client sends: clipped, made noisy, and only then compressed.

    P(x) = C(min(1, S/|x|) x + σ S ξ),      ξ standard normal, S = clip, σ = noise

Whatever a client's data is, what is clipped lies in a ball of radius S.  So P is a Gaussian mechanism of sensitivity 2S
and standard deviation σS, followed by C, which sees nothing but its result: (ε, δ) is that of the Gaussian mechanism,
whatever C is (docs/privacy.md).  The noise is added in float64, where clipping is exact.

Rand-k's entries are drawn from a public key, without a look at x.  What they leave out is never sent, so the rest is
clipped by itself: S bounds the norm of the entries drawn, and can be √(k/p) times smaller for the same loss, the noise
with it.

P is no contraction, and zero does not go to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from fedcef.compressors.blocks import norm
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.sparsifiers import RandK
from fedcef.core.layout import Layout
from fedcef.core.rng import Key, normal, subset
from fedcef.wire import Payload

Draw = Callable[[Tensor, Key], Tensor]
"""draw(x, key): a standard normal number for every entry of x, float64; x is what they will be added to."""


def simulated(x: Tensor, key: Key) -> Tensor:
    """Noise that everyone can repeat who has the seed: right for a simulation, and no privacy at all."""
    return normal(key.noise, x.shape[-1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Private(Compressor):
    """Clips, adds Gaussian noise, and leaves the rest to another compressor."""

    inner: Compressor
    clip: float
    """S: the largest norm before noise."""
    noise: float
    """σ: the standard deviation of the noise, in units of S."""
    draw: Draw = simulated
    """Where ξ comes from; a deployed client puts its own secret source here."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """What the inner compressor sends for x after clipping and noise."""
        bounded = self.bounded(x, key)
        noisy = bounded + self.noise * self.clip * self.draw(bounded, key)
        return self.inner.compress(noisy.to(x.dtype), key)

    def bounded(self, x: Tensor, key: Key) -> Tensor:
        """What of x may be sent, with a norm of at most S; float64."""
        x = x.double()  # squares in float32 would let the norm be off by 1e-8
        if isinstance(self.inner, RandK):
            drawn = subset(key.shared, x.shape[-1], self.inner.count(x.shape[-1]))
            x = x * x.new_zeros(x.shape[-1]).index_fill(0, drawn, 1)  # a NaN stays one
        return x * (self.clip / norm(x).clamp(min=self.clip))

    def contraction(self, dim: int) -> float | None:
        """None: noise does not shrink with x."""
        return None

    def fit(self, layout: Layout) -> Private:
        """The same with the inner compressor fitted."""
        return replace(self, inner=self.inner.fit(layout))
