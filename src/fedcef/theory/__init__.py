"""The paper's convergence theorem, held against a run; see docs/theory.md."""

from fedcef.theory.check import Check, check_theorem
from fedcef.theory.estimates import Losses, largest_eigenvalue, minibatch_variance
from fedcef.theory.theorem import Bound, Setting, Start, compute_bound

__all__ = [
    "Bound",
    "Check",
    "Losses",
    "Setting",
    "Start",
    "check_theorem",
    "compute_bound",
    "largest_eigenvalue",
    "minibatch_variance",
]
