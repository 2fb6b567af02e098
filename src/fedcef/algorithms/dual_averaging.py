"""What Fast-FedDA and C-FedDA share: dual averaging for a strongly convex loss.

After n gradients the next point is the minimiser of the model that they make of the problem,

    w = argmin_u  Σ_{s≤n} [⟨g_s, u⟩ + (μ/4)|u - w_s|²] + n·h(u) + (γ/2)|u - z0|²,

where g_s was taken at w_s.  Setting its subdifferential to 0 gives, with B = μn/2 + γ,

    w = prox_{(n/B)h}((γ z0 + (μ/2) Σ w_s - Σ g_s) / B).

With h = 0 two successive such points differ by g_n / B: gradient descent with the step 1/(μn/2 + γ).  So all steps,
and with them the clients' drift apart, shrink like 1/n: with different clients the error is O(K/n), without a bias that
stays, and with some of the clients in a round O(1/√n).  `local_lr` and `server_lr` play no part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from fedcef.algorithms.algorithm import Algorithm, Oracle, State, Vector
from fedcef.core.ranges import Positive


@dataclass(frozen=True, kw_only=True, eq=False)
class DualAveraging(Algorithm, ABC):
    """Dual averaging with steps that shrink like one over the number of gradients."""

    strong_convexity: Positive = 1e-3
    """μ: how strongly the loss is assumed to be convex; the n-th step is about 1/(μn/2 + γ) long."""
    anchor_weight: Positive = 25.0
    """γ: the pull towards the start point; the first step is about 1/γ long, so γ should be L or more."""

    @property
    def step(self) -> float:
        """The length of the first step, 1/(μ/2 + γ)."""
        return 1 / (self.strong_convexity / 2 + self.anchor_weight)

    def largest_prox_step(self, rounds: int) -> float:
        n = rounds * self.local_steps
        return n / (self.strong_convexity / 2 * n + self.anchor_weight)

    def replica_init(self, z0: Vector) -> State:
        zeros = z0.new_zeros(z0.shape)
        return {"w": z0, "points": z0, "gradients": zeros, "z0": z0, "n": z0.new_zeros(1)}

    def model(self, replica: State) -> Vector:
        return replica["w"]

    def walk(self, replica: State, oracle: Oracle) -> tuple[Vector, Vector]:
        """A client's K gradients, each at the point to which those before it lead: the sums of points and gradients."""
        points, gradients = replica["points"], replica["gradients"] + oracle(replica["w"], 0)
        for k in range(1, self.local_steps):
            w, points = self.local_point(replica, points, gradients, k)
            gradients = gradients + oracle(w, k)
        return points, gradients

    @abstractmethod
    def local_point(self, replica: State, points: Vector, gradients: Vector, k: int) -> tuple[Vector, Vector]:
        """Where a client takes its k-th gradient, and the sum of points with it."""

    def next_point(self, z0: Vector, points: Vector, gradients: Vector, n: Vector) -> Vector:
        """The minimiser, from the sums of n points and of n gradients; n is (1,)."""
        scale = self.strong_convexity / 2 * n + self.anchor_weight
        centre = (self.anchor_weight * z0 + self.strong_convexity / 2 * points - gradients) / scale
        return self.regularizer.prox(centre, n / scale)
