"""Fed-EF: error feedback on the changes of local training, with a server step.

Li, Li, "Analysis of Error Feedback in Federated Non-Convex Optimization with Biased Compression" (ICML 2023, arXiv
2211.14292), the form with SGD on the server:

    client:  x = z;   for k:  x ← x - α g_i(x);   d_i = C(e_i + x - z);   e_i ← e_i + x - z - d_i;   upload d_i
    server:  z ← prox_{βh}(z + η_g · mean d_i);   broadcast z

These are the rounds of Qsparse-local-SGD but for η_g, which qsparse.py takes from the settings as well: the two are one
method here, under both names.  Not here: AMSGrad on the server, compression on the way down.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.qsparse import Qsparse


@dataclass(frozen=True, kw_only=True, eq=False)
class FedEF(Qsparse):
    """Error feedback on compressed local changes, with a server step."""
