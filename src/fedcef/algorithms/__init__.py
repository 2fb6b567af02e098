"""One file per method.  To add one: its class in a file of its own, and a line here."""

from fedcef.algorithm import Algorithm
from fedcef.algorithms.fedavg import FedAvg
from fedcef.algorithms.fedcanon import FedCanon
from fedcef.algorithms.fedcef import FedCEF
from fedcef.algorithms.fedda import FedDA
from fedcef.algorithms.zhang import Zhang

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedcef": FedCEF,
    "zhang": Zhang,
    "fedavg": FedAvg,
    "fedda": FedDA,
    "fedcanon": FedCanon,
}

__all__ = ["ALGORITHMS", "FedAvg", "FedCEF", "FedCanon", "FedDA", "Zhang"]
