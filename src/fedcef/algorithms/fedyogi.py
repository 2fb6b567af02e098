"""FedYogi: FedAvg with Yogi on the server.

Reddi et al., "Adaptive Federated Optimization" (arXiv 2003.00295), algorithm 2:

    client:  x = z;   for k:  x ← x - α g_i(x);   upload x - z
    server:  d = mean (x - z);   m ← b_1 m + (1-b_1) d;   v ← v - (1-b_2) d² sign(v - d²)
             z ← z + η_g m / (√v + τ);   broadcast z

from m = 0 and v = τ², with a subgradient of h in every g_i (ours; see smooth.py and fedopt.py).
Take η_g = 0.01 rather than 1: entries move by η_g, whatever the size of d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.fedopt import AdaptiveFedOpt
from fedcef.core.ranges import UnitInterval
from fedcef.optimizers import ServerUpdate, Yogi


@dataclass(frozen=True, kw_only=True, eq=False)
class FedYogi(AdaptiveFedOpt):
    """FedAvg with Yogi on the server."""

    kind: ClassVar[type[ServerUpdate]] = Yogi

    decay: UnitInterval = 0.99
    """b_2: 1 minus the share of the last squared change by which the memory moves."""
