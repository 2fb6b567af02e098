"""Regularisers and points for the tests."""

from dataclasses import fields

import pytest
import torch

from fedcef.core import rng
from fedcef.core.layout import Layout
from fedcef.regularizers import REGULARIZERS, TV, ElasticNet, GroupLasso, OnParameters, Regularizer
from fedcef.regularizers.constraints import Constraint

DIM = 12
LAYOUT = Layout(("weight", "bias"), ((3, 3), (3,)))
STEPS = [0.05, 0.8]
STRONG = {"weight": 0.5, "ridge": 0.5, "group_weight": 0.4, "fuse_weight": 0.3, "radius": 2.0, "lower": -0.5}


def strong(kind: type[Regularizer]) -> Regularizer:
    """With weights at which something happens to vectors of size one; everything else as it comes."""
    return kind(**{f.name: STRONG[f.name] for f in fields(kind) if f.name in STRONG}).fit(LAYOUT)


CASES: dict[str, Regularizer] = {
    **{f"{name} as it comes": kind().fit(LAYOUT) for name, kind in REGULARIZERS.items()},
    **{f"{name}, strong": strong(kind) for name, kind in REGULARIZERS.items()},
    "on some": OnParameters(ElasticNet(0.4, 0.9), torch.tensor([0, 3, 4, 11])),
    "groups by input": GroupLasso(0.5, by="input").fit(Layout(("kernel",), ((2, 3, 2),))),
    "groups of several sizes": GroupLasso(0.5, sizes=(1, 4, 4, 3)),
    "all in one group": GroupLasso(0.2, scale="none"),
    "one chain": TV(0.4),
}
SUMS = ("zero", "l1", "elastic_net", "box", "l0", "mcp", "scad")
"""Those that are sums over entries."""


def is_constraint(h: Regularizer) -> bool:
    return isinstance(h.inner if isinstance(h, OnParameters) else h, Constraint)


CONSTRAINTS = {name: h for name, h in CASES.items() if is_constraint(h)}
FUNCTIONS = {name: h for name, h in CASES.items() if not is_constraint(h)}
WEAKLY_CONVEX = {name: h for name, h in CASES.items() if h.weak_convexity < float("inf")}
WITH_SUBGRADIENTS = {name: h for name, h in FUNCTIONS.items() if name in WEAKLY_CONVEX}
BOUNDED = {name: h for name, h in CASES.items() if h.bounded_subgradient(DIM) is not None}
CAPTURED = {name: h for name, h in CASES.items() if h.captures}


def every(cases: dict[str, Regularizer]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("h", cases.values(), ids=cases)


every_case = every(CASES)
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
every_step = pytest.mark.parametrize("step", STEPS)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def points(count: int, seed: int = 0, dim: int = DIM) -> torch.Tensor:
    return rng.normal(rng.fold(rng.seed_key(seed), torch.arange(count)), dim)


def model_value(h: Regularizer, u: torch.Tensor, x: torch.Tensor, step: float) -> torch.Tensor:
    """What the proximal operator minimises over u."""
    return h.value(u) + (u - x).square().sum(-1) / (2 * step)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
