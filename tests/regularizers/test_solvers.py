"""Proximal operators against the general convex solvers of cvxpy."""

import math

import numpy as np
import pytest

from fedcef.regularizers import REGULARIZERS, SLOPE

from .cases import DIM, STRONG, close, every_step, model_value, points, strong

cp = pytest.importorskip("cvxpy", reason="needs cvxpy: pip install cvxpy")


def variation(u):
    """As the regularisers are fitted: three chains of three weights, and one of three biases."""
    return sum(cp.norm1(cp.diff(u[start : start + 3])) for start in (0, 3, 6, 9))


def rows(u):
    return sum(math.sqrt(3) * cp.norm2(u[start : start + 3]) for start in (0, 3, 6))


def sorted_l1(u):
    weights = [*SLOPE(STRONG["weight"]).weights(DIM).tolist(), 0.0]
    return sum((weights[k] - weights[k + 1]) * cp.sum_largest(cp.abs(u), k + 1) for k in range(DIM))


def matrix(u):
    return cp.reshape(u[:9], (3, 3), order="C")


weight, radius = STRONG["weight"], STRONG["radius"]
FUNCTIONS = {
    "zero": lambda u: 0,
    "l1": lambda u: weight * cp.norm1(u),
    "elastic_net": lambda u: weight * cp.norm1(u) + STRONG["ridge"] / 2 * cp.sum_squares(u),
    "l2_norm": lambda u: weight * cp.norm2(u),
    "linf": lambda u: weight * cp.norm_inf(u),
    "group_lasso": lambda u: weight * rows(u),
    "sparse_group_lasso": lambda u: weight * cp.norm1(u[:9]) + STRONG["group_weight"] * rows(u),
    "nuclear": lambda u: weight * cp.normNuc(matrix(u)),
    "tv": lambda u: weight * variation(u),
    "fused_lasso": lambda u: weight * cp.norm1(u) + STRONG["fuse_weight"] * variation(u),
    "slope": sorted_l1,
}
SETS = {
    "box": lambda u: [u >= STRONG["lower"], u <= 1],
    "simplex": lambda u: [u >= 0, cp.sum(u) == radius],
    "l1_ball": lambda u: [cp.norm1(u) <= radius],
    "nuclear_ball": lambda u: [cp.normNuc(matrix(u)) <= radius],
}


def test_all_convex_regularizers_are_here():
    assert set(FUNCTIONS) | set(SETS) | {"l0", "mcp", "scad"} == set(REGULARIZERS)


@every_step
@pytest.mark.parametrize("name", [*FUNCTIONS, *SETS])
def test_prox_is_what_the_solver_finds(name, step):
    h = strong(REGULARIZERS[name])
    for x in points(3) * 1.5:
        u = cp.Variable(DIM)
        cost = FUNCTIONS.get(name, lambda u: 0)(u) + cp.sum_squares(u - x.numpy()) / (2 * step)
        problem = cp.Problem(cp.Minimize(cost), SETS.get(name, lambda u: [])(u))
        accuracy = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
        least = problem.solve(solver="CLARABEL", **accuracy)
        found = h.prox(x, step)
        close(found, x.new_tensor(np.asarray(u.value)), 1e-6)
        assert float(model_value(h, found, x, step)) == pytest.approx(least, rel=1e-8, abs=1e-8)
