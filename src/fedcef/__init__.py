"""fedcef: composite federated learning over a narrow network.

from fedcef import FedCEF, L1, Problem, TopK, simulate

problem = Problem.build(model, loss, clients=[(x_1, y_1), (x_2, y_2)], test=(x, y), regularizer=L1(1e-4))
history = simulate(problem, FedCEF(local_lr=0.1, compressor=TopK(ratio=0.01)), rounds=100)
"""

from fedcef.algorithms import FedAvg, FedCanon, FedCEF, FedDA, Zhang
from fedcef.compressors import Identity, LayerwiseTopK, RandK, TopK
from fedcef.problems.problem import Problem, Samples
from fedcef.regularizers import L1, ElasticNet, OnParameters, Zero
from fedcef.simulation.history import History, simulate

__version__ = "0.1.0"

__all__ = [
    "L1",
    "ElasticNet",
    "FedAvg",
    "FedCEF",
    "FedCanon",
    "FedDA",
    "History",
    "Identity",
    "LayerwiseTopK",
    "OnParameters",
    "Problem",
    "RandK",
    "Samples",
    "TopK",
    "Zero",
    "Zhang",
    "simulate",
]
