"""C-FedDA: Fast-FedDA with half of its upload.

Bao, Crawshaw, Luo, Liu, "Fast Composite Optimization and Statistical Recovery in Federated Learning" (ICML 2022,
arXiv 2207.08204).  Only the server's points are added up, each for the K gradients of its round, so that a client
sends its gradients alone.  With W the sum of these points, G that of all gradients and n = rK at the end of round
r = 1, 2, ..., and `next` the minimiser in dual_averaging.py:

    client:  w_i = w, G_i = G;   for k = 1..K:   G_i ← G_i + g_i(w_i);   w_i ← next(K·W, G_i, n)
             upload G_i
    server:  G = mean G_i;   w = next(K·W, G, n);   broadcast G and w
    all:     W ← W + w

Follows the authors' public code (LassoRun.m, its one-stage method; only the abstract of the paper was at hand, where
the method may have a constraint that the code has not).  As there, n stands for the whole round in its local steps too,
where fewer gradients are in G_i: h weighs a little too much, by a part that vanishes like 1/r, also where clients are
alike.  4p bytes up, 8p down; 4p down would do, as everyone can compute w.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.dual_averaging import DualAveraging
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class CFedDA(DualAveraging):
    """Fast-FedDA that accumulates only the server's points and uploads only gradients."""

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        _, gradients = self.walk(replica, oracle)
        return {"gradients": Dense(gradients)}, {}

    def local_point(self, replica: State, points: Vector, gradients: Vector, k: int) -> tuple[Vector, Vector]:
        return self._point(replica, gradients), points

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        gradients = received.mean["gradients"]
        return {"gradients": Dense(gradients), "w": Dense(self._point(replica, gradients))}, {}

    def advance(self, replica: State, down: Message) -> State:
        w = down["w"].dense()
        return {
            "w": w,
            "points": replica["points"] + w,
            "gradients": down["gradients"].dense(),
            "z0": replica["z0"],
            "n": replica["n"] + self.local_steps,
        }

    def _point(self, replica: State, gradients: Vector) -> Vector:
        n = replica["n"] + self.local_steps
        return self.next_point(replica["z0"], self.local_steps * replica["points"], gradients, n)
