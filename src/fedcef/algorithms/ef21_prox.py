"""EF21-Prox: EF21 for composite problems.

Fatkhullin, Sokolov, Gorbunov, Li, Richtárik, "EF21 with Bells & Whistles" (arXiv 2110.03294):

    client:  Δ_i = C(∇f_i(z) - g_i);   g_i ← g_i + Δ_i;   upload Δ_i
    server:  g ← g + mean Δ_i;   z ← prox_{βh}(z - β g);   broadcast z

That is EF21 with the prox that smooth methods have here by default, so it is that class with the choice fixed; what is
ours there is ours here.  It is also FedCEF with K = 1 and η = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedcef.algorithms.ef21 import EF21


@dataclass(frozen=True, kw_only=True, eq=False)
class EF21Prox(EF21):
    """EF21 with a proximal step; exact for composite problems."""

    composite: Literal["server_prox"] = "server_prox"
    """How the regulariser enters; there is no choice here."""
