"""FedAvgM: FedAvg with momentum on the server.

Hsu, Qi, Brown 2019 (arXiv 1909.06335):

    client:  x = z;   for k:  x ← x - α g_i(x);   upload x - z
    server:  d = mean (x - z);   m ← γ m + d;   z ← prox_{βh}(z + η_g m);   broadcast z

With `nesterov` the step is d + γ m.  The authors have η_g = 1.  Checked against the Flower strategy of that name.  β is
αη_gK/(1-γ) here: momentum repeats every change 1/(1-γ) times in all, and a shorter prox (ours; see smooth.py) would
solve the problem with (1-γ)h.  With γ = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.fedopt import FedOpt
from fedcef.optimizers import Memory, Momentum, ServerUpdate


@dataclass(frozen=True, kw_only=True, eq=False)
class FedAvgM(FedOpt):
    """FedAvg with momentum on the server."""

    kind: ClassVar[type[ServerUpdate]] = Momentum

    momentum: Memory = 0.9
    """γ: how much of the server's last step is repeated."""
    nesterov: bool = False
    """Whether the step looks ahead to where the momentum leads."""
