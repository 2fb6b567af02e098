"""EF21-PP: EF21 with some of the clients.

Fatkhullin, Sokolov, Gorbunov, Li, Richtárik, "EF21 with Bells & Whistles" (arXiv 2110.03294), Algorithm 4.  Whoever is
away sends nothing and keeps its g_i; the server's g remains the mean over all N:

    client:  Δ_i = C(∇f_i(z) - g_i);   g_i ← g_i + Δ_i;   upload Δ_i          (if it takes part)
    server:  g ← g + (1/N) Σ Δ_i;   z ← prox_{βh}(z - β g);   broadcast z

The authors call it EF21 with Δ_i = 0 for those who are away, and that is what ef21.py computes with any cohort, where
(1/N) Σ Δ_i is (S/N) · mean Δ_i: the two are one method here, under both names, and with everyone it is EF21.  Checked
against the paper's text and its authors' code.  The paper draws every client with a probability of its own, the code
and the engines here S of N; the code starts from g_i = ∇f_i(z0) of everyone, here g_i = 0, which asks nobody for
anything before the first round.  What is ours there is ours here; the authors treat the prox apart (ef21_prox.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.ef21 import EF21


@dataclass(frozen=True, kw_only=True, eq=False)
class EF21PP(EF21):
    """EF21 under its name for partial participation."""
