"""TAMUNA: local steps, compression and some of the clients.

Condat, Agarský, Malinovsky, Richtárik 2023 (arXiv 2302.09832).  CompressedScaffnew (compressed_scaffnew.py) in which c
of the N clients take part in a round, each entry is sent by s of those c, and the others keep their h_i:

    client:  x_i = z;   L times:  x_i ← x_i - α (g_i(x_i) - h_i);   upload the entries of x_i in q_i
    server:  z ← (1/s) Σ q_i x_i;   broadcast z
    client:  h_i ← h_i + (η/α) q_i (z - x_i),        η = χθ,   χ = c(s-1) / (s(c-1))

The sums are over the cohort.  Any L >= 1 will do, and the theorem is for a geometric one (random_steps.py).  Checked
against the code that authors published (adap/flower, baselines/tamuna), but for one thing: there a client does the last
line when it takes part again, with the z of that time, which loses Σ h_i = 0 and the solution with it.  It must be the
z at the end of its round, and the simulator sends a round's participants all of it, where the paper sends the entries
in q_i; a deployment asks for all clients (deferred_control.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.compressed_scaffnew import CompressedScaffnew


@dataclass(frozen=True, kw_only=True, eq=False)
class TAMUNA(CompressedScaffnew):
    """CompressedScaffnew by its rule for cohorts."""

    partial_participation: ClassVar[bool] = True
    hears_the_end: ClassVar[bool] = True
