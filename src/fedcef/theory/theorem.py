"""Theorem 1 of the paper as formulas.

With β = α·η_g·K, mixing η, contraction q (E|C(x) - x|² <= q²|x|²), batch size B and |h'| <= B_h, the conditions

    β <= min{η², (1-q)²} / (25 L)      and      η_g >= sqrt(16(1-q)² + 161η²) / (5η(1-q))

give, with γ = 0.15,

    1/T Σ_t E|G_β(z_t)|²  <=  Ψ⁰/(γβT)  +  C_stoc σ²/(KB)  +  C_approx L²β²B_h²/η_g²,

    C_stoc   = 6.7 (17η/N + 14η²/(1-q) + 140η³/(1-q)²)
    C_approx = (18.4/γ) (16 + 161η²/(1-q)²)

The paper writes Ψ⁰ in two ways that do not agree.  This is the one that its proof uses, at the start v_i = c_i = 0 with
z_{-1} = z_0 (reading A12 in docs/algorithms.md):

    Ψ⁰ = F(z_0) - F* + (8β/η) |∇f(z_0)|² + (70ηβ/(1-q)²) (1/N) Σ_i |∇f_i(z_0)|².
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

GAMMA = 0.15


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the theorem asks of a run's settings, and of its problem."""

    smoothness: float
    """L, of every client's loss."""
    contraction: float
    """q, not squared; below 1."""
    mixing: float
    local_lr: float
    server_lr: float
    local_steps: int
    num_clients: int

    @property
    def step(self) -> float:
        """β."""
        return self.local_lr * self.server_lr * self.local_steps

    @property
    def largest_step(self) -> float:
        """The most that β may be."""
        return min(self.mixing**2, (1 - self.contraction) ** 2) / (25 * self.smoothness)

    @property
    def least_server_lr(self) -> float:
        """The least that η_g may be; never below √177/5 = 2.66."""
        kept, mixing = 1 - self.contraction, self.mixing
        return sqrt(16 * kept**2 + 161 * mixing**2) / (5 * mixing * kept)

    @property
    def stochastic_factor(self) -> float:
        """C_stoc."""
        mixing, kept = self.mixing, 1 - self.contraction
        return 6.7 * (17 * mixing / self.num_clients + 14 * mixing**2 / kept + 140 * mixing**3 / kept**2)

    @property
    def approximation_factor(self) -> float:
        """C_approx."""
        return 18.4 / GAMMA * (16 + 161 * self.mixing**2 / (1 - self.contraction) ** 2)


@dataclass(frozen=True, kw_only=True)
class Start:
    """What Ψ⁰ is made of."""

    gap: float
    """F(z_0) - F*, or more."""
    gradient: float
    """|∇f(z_0)|²."""
    client_gradients: float
    """The mean of |∇f_i(z_0)|²."""

    def potential(self, setting: Setting) -> float:
        """Ψ⁰."""
        mixing, step = setting.mixing, setting.step
        spread = 70 * mixing * step / (1 - setting.contraction) ** 2
        return self.gap + 8 * step / mixing * self.gradient + spread * self.client_gradients


@dataclass(frozen=True)
class Bound:
    """On the mean over the rounds of E|G_β(z_t)|²."""

    start: float
    """Ψ⁰/(γβT), which vanishes with more rounds."""
    noise: float
    """C_stoc σ²/(KB), of the minibatches."""
    decoupling: float
    """C_approx L²β²B_h²/η_g², of the local proximal steps."""

    @property
    def total(self) -> float:
        """The three together."""
        return self.start + self.noise + self.decoupling


def compute_bound(setting: Setting, start: Start, *, rounds: int, noise: float, subgradient: float) -> Bound:
    """The right-hand side; `noise` is σ²/B, the variance of a minibatch gradient, `subgradient` is B_h."""
    spread = setting.smoothness * setting.step * subgradient / setting.server_lr
    return Bound(
        start.potential(setting) / (GAMMA * setting.step * rounds),
        setting.stochastic_factor * noise / setting.local_steps,
        setting.approximation_factor * spread**2,
    )
