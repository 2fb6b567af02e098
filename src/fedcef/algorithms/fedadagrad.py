"""FedAdagrad: FedAvg with Adagrad on the server.

Reddi et al., "Adaptive Federated Optimization" (arXiv 2003.00295), algorithm 2:

    client:  x = z;   for k:  x ← x - α g_i(x);   upload x - z
    server:  d = mean (x - z);   m ← b_1 m + (1-b_1) d;   v ← v + d²
             z ← z + η_g m / (√v + τ);   broadcast z

from m = 0 and v = τ², with a subgradient of h in every g_i (ours; see smooth.py and fedopt.py).  By default b_1
is 0, as in the authors' experiments.  Take η_g = 0.01 rather than 1: the first steps are of size η_g, whatever d is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.fedopt import AdaptiveFedOpt
from fedcef.optimizers import Adagrad, Memory, ServerUpdate


@dataclass(frozen=True, kw_only=True, eq=False)
class FedAdagrad(AdaptiveFedOpt):
    """FedAvg with Adagrad on the server."""

    kind: ClassVar[type[ServerUpdate]] = Adagrad

    momentum: Memory = 0.0
