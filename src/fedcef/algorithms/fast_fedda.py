"""Fast-FedDA: dual averaging that uses strong convexity, with gradients and points added up on the clients.

Bao, Crawshaw, Luo, Liu, "Fast Composite Optimization and Statistical Recovery in Federated Learning" (ICML 2022,
arXiv 2207.08204).  With W the sum of the points at which gradients were taken, G the sum of these gradients and
n their number (z0, 0, 0 at the start, where w = z0), and `next` the minimiser in dual_averaging.py:

    client:  w_i = w, W_i = W, G_i = G
             for k = 1..K:   G_i ← G_i + g_i(w_i);   if k < K:  w_i ← next(W_i, G_i, n + k);   W_i ← W_i + w_i
             upload G_i and W_i
    server:  G = mean G_i, W = mean W_i;   broadcast both
    all:     n ← n + K;   w ← next(W, G, n);   W ← W + w

Follows the authors' public code (LassoRun.m, all steps weighed alike; only the abstract of the paper was at hand, and
it may weigh later steps more), but for one thing: the code adds the clients' K-th points to W as well, at which no
gradient is taken.  W then holds n + n/K points in place of n, and the limit solves 0 ∈ ∇f(w) + ∂h(w) - (μ/2K) w
instead.  8p bytes up, 8p down.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.dual_averaging import DualAveraging
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FastFedDA(DualAveraging):
    """Fast federated dual averaging, for strongly convex losses."""

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        points, gradients = self.walk(replica, oracle)
        return {"gradients": Dense(gradients), "points": Dense(points.expand_as(gradients))}, {}

    def local_point(self, replica: State, points: Vector, gradients: Vector, k: int) -> tuple[Vector, Vector]:
        w = self.next_point(replica["z0"], points, gradients, replica["n"] + k)
        return w, points + w

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        return {name: Dense(mean) for name, mean in received.mean.items()}, {}

    def advance(self, replica: State, down: Message) -> State:
        z0, n = replica["z0"], replica["n"] + self.local_steps
        points, gradients = down["points"].dense(), down["gradients"].dense()
        w = self.next_point(z0, points, gradients, n)
        return {"w": w, "points": points + w, "gradients": gradients, "z0": z0, "n": n}
