"""fedcef: composite federated learning over a narrow network.

from fedcef import FedCEF, L1, Problem, TopK, run

problem = Problem.build(model, loss, clients=[(x_1, y_1), (x_2, y_2)], test=(x, y), regularizer=L1(1e-4))
history = run(problem, FedCEF(local_lr=0.1, compressor=TopK(ratio=0.01)), rounds=100)

A name is imported when it is first used: `import fedcef` alone loads nothing, torch included.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcef.algorithms import FedAvg, FedCanon, FedCEF, FedDA, Zhang
    from fedcef.compressors import Identity, LayerwiseTopK, RandK, TopK
    from fedcef.core.errors import ConfigError, DivergedError, FedcefError, ProblemError
    from fedcef.estimators import FederatedLasso as FederatedLasso
    from fedcef.estimators import FederatedLogisticRegression as FederatedLogisticRegression
    from fedcef.problems.problem import Problem, Samples
    from fedcef.python.history import History, simulate
    from fedcef.python.run import run
    from fedcef.regularizers import L1, ElasticNet, OnParameters, Zero

__version__ = "0.1.0"

__all__ = [
    "L1",
    "ConfigError",
    "DivergedError",
    "ElasticNet",
    "FedAvg",
    "FedCEF",
    "FedCanon",
    "FedDA",
    "FedcefError",
    "History",
    "Identity",
    "LayerwiseTopK",
    "OnParameters",
    "Problem",
    "ProblemError",
    "RandK",
    "Samples",
    "TopK",
    "Zero",
    "Zhang",
    "run",
    "simulate",
]

_HOMES = {
    "algorithms": ("FedAvg", "FedCEF", "FedCanon", "FedDA", "Zhang"),
    "python.run": ("run",),
    "compressors": ("Identity", "LayerwiseTopK", "RandK", "TopK"),
    "core.errors": ("ConfigError", "DivergedError", "FedcefError", "ProblemError"),
    "estimators": ("FederatedLasso", "FederatedLogisticRegression"),
    "problems.problem": ("Problem", "Samples"),
    "regularizers": ("L1", "ElasticNet", "OnParameters", "Zero"),
    "python.history": ("History", "simulate"),
}
"""Where the names above live; the imports for type checkers say the same.  The estimators are not among those that `*`
brings, because they need scikit-learn."""
_HOME = {name: f"fedcef.{home}" for home, names in _HOMES.items() for name in names}
_PACKAGES = {"algorithms", "compressors", "estimators", "problems", "regularizers", "report", "runs", "wire"}

if not TYPE_CHECKING:  # type checkers know the names from the imports above, and no others

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
            globals()[name] = value  # from now on without this function
            return value
        if name in _PACKAGES:
            return import_module(f"fedcef.{name}")
        raise AttributeError(f"module 'fedcef' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME, *_PACKAGES})
