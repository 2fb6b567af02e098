"""Regularisers h of the problem min (1/N) Σ f_i + h."""

from fedcef.regularizers.regularizer import OnParameters, Regularizer, Step, soft_threshold
from fedcef.regularizers.separable import L1, ElasticNet, Zero

REGULARIZERS: dict[str, type[Regularizer]] = {
    "zero": Zero,
    "l1": L1,
    "elastic_net": ElasticNet,
}

__all__ = ["L1", "REGULARIZERS", "ElasticNet", "OnParameters", "Regularizer", "Step", "Zero", "soft_threshold"]
