"""fedcef: composite federated learning over a low-bandwidth network.

from fedcef import FedCEF, L1, Problem, TopK, run

problem = Problem.build(model, loss, clients=[(x_1, y_1), (x_2, y_2)], test=(x, y), regularizer=L1(1e-4))
history = run(problem, FedCEF(local_lr=0.1, compressor=TopK(ratio=0.01)), rounds=100)

A name is imported when it is first used: `import fedcef` alone loads nothing, torch included.  `__init__.pyi`, which
type checkers read, has all names with their homes; this file reads them there.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
_LINES = [line for line in _STUB.body if isinstance(line, ast.ImportFrom)]
_HOME = {alias.name: line.module or "" for line in _LINES for alias in line.names}
# `*` brings neither packages nor the estimators, which need scikit-learn
__all__ = [name for name, home in _HOME.items() if home not in ("fedcef", "fedcef.estimators")]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedcef' has no attribute {name!r}")
    if _HOME[name] == "fedcef":
        return import_module(f"fedcef.{name}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)  # from now on without this function
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
