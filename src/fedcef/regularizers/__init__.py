"""Regularisers h of the problem min (1/N) Σ f_i + h.  To add one: its class in a file of its kind, and a line here."""

from fedcef.regularizers.constraints import Box, L1Ball, Simplex
from fedcef.regularizers.grouped import GroupLasso, SparseGroupLasso
from fedcef.regularizers.matrix import Nuclear, NuclearBall
from fedcef.regularizers.nonconvex import L0, MCP, SCAD
from fedcef.regularizers.norms import L2Norm, LInf
from fedcef.regularizers.ordered import SLOPE, TV, FusedLasso
from fedcef.regularizers.regularizer import OnParameters, Regularizer, Step, soft_threshold
from fedcef.regularizers.separable import L1, ElasticNet, Zero

REGULARIZERS: dict[str, type[Regularizer]] = {
    "zero": Zero,
    "l1": L1,
    "elastic_net": ElasticNet,
    "l2_norm": L2Norm,
    "linf": LInf,
    "group_lasso": GroupLasso,
    "sparse_group_lasso": SparseGroupLasso,
    "nuclear": Nuclear,
    "tv": TV,
    "fused_lasso": FusedLasso,
    "slope": SLOPE,
    "box": Box,
    "simplex": Simplex,
    "l1_ball": L1Ball,
    "nuclear_ball": NuclearBall,
    "l0": L0,
    "mcp": MCP,
    "scad": SCAD,
}

__all__ = [
    "L0",
    "L1",
    "MCP",
    "REGULARIZERS",
    "SCAD",
    "SLOPE",
    "TV",
    "Box",
    "ElasticNet",
    "FusedLasso",
    "GroupLasso",
    "L1Ball",
    "L2Norm",
    "LInf",
    "Nuclear",
    "NuclearBall",
    "OnParameters",
    "Regularizer",
    "Simplex",
    "SparseGroupLasso",
    "Step",
    "Zero",
    "soft_threshold",
]
