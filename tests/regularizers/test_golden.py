"""Proximal operators against two libraries: skglm 0.5 (BSD-3) and pyproximal 0.13 (LGPL-3).

The numbers below were printed, with numba 0.68 and NumPy 2.4, by

    import numpy as np, pyproximal as pp
    from skglm.utils import prox_funcs as sk

    x = np.array([1.7, -0.4, 0.2, -2.6, 0.9, 1.1, -0.05, 3.2, -1.3, 0.6, -0.8, 2.1])
    t, exact = 0.8, dict(maxiter=1000, xtol=1e-14)
    order = np.argsort(-np.abs(x))
    slope = np.empty(12)
    slope[order] = sk.prox_SLOPE(np.abs(x)[order], t * 2 * (1 - np.arange(12) / 11))
    golden = {
        "mcp": [sk.prox_MCP(v, t, 0.5, 3.0) for v in x],
        "scad": [sk.prox_SCAD(v, t, 0.5, 3.7) for v in x],           # pp.SCAD(0.5, 3.7).prox(x, t) is the same
        "slope": slope * np.sign(x),
        "group_lasso": np.concatenate([sk.BST(g, t * 0.5 * 3**0.5) for g in x.reshape(4, 3)]),
        "sparse_group_lasso": pp.L21_plus_L1(1.0, 0.3).prox(x.reshape(4, 3).T, t).T.ravel(),
        "l0": pp.L0((2 * t * 0.5) ** 0.5 / t).prox(x, t),            # its prox takes a threshold, not a weight
        "l2_norm": pp.Euclidean(0.5).prox(x, t),
        "nuclear": pp.Nuclear((3, 4), 0.5).prox(x, t),
        "nuclear_ball": pp.NuclearBall((3, 4), 2.0, **exact).prox(x, t),
        "l1_ball": pp.L1Ball(12, 2.0, **exact).prox(x, t),
        "simplex": pp.Simplex(12, 2.0, **exact).prox(x, t),
        "box": pp.Box(-0.5, 1.0).prox(x, t),
        "tv": pp.TV((12,), 0.5, niter=100000, rtol=0).prox(x, t),
    }
    for name, values in golden.items():
        print(name, np.round(np.asarray(values, float), 10).tolist())
"""

import pytest
import torch

from fedcef.regularizers import (
    L0,
    MCP,
    SCAD,
    SLOPE,
    TV,
    Box,
    GroupLasso,
    L1Ball,
    L2Norm,
    Nuclear,
    NuclearBall,
    Simplex,
    SparseGroupLasso,
)
from fedcef.regularizers.matrix import Matrix

X = torch.tensor([1.7, -0.4, 0.2, -2.6, 0.9, 1.1, -0.05, 3.2, -1.3, 0.6, -0.8, 2.1], dtype=torch.float64)
ONE = (Matrix(0, 3, 4),)
THREES = (3, 3, 3, 3)

GOLDEN = {
    "mcp": (
        MCP(0.5, 3.0),
        [1.7, 0.0, 0.0, -2.6, 0.6818181818, 0.9545454545, 0.0, 3.2, -1.2272727273, 0.2727272727, -0.5454545455, 2.1],
    ),
    "scad": (
        SCAD(0.5, 3.7),
        [1.6368421053, 0.0, 0.0, -2.6, 0.5, 0.7842105263, 0.0, 3.2, -1.0684210526, 0.2, -0.4, 2.1],
    ),
    "slope": (
        SLOPE(2.0, last=0.0),
        [
            0.5363636364,
            -0.1090909091,
            0.0545454545,
            -1.1454545455,
            0.1954545455,
            0.2272727273,
            -0.05,
            1.6,
            -0.2818181818,
            0.1636363636,
            -0.1954545455,
            0.7909090909,
        ],
    ),
    "group_lasso": (
        GroupLasso(0.5, sizes=THREES),
        [
            1.0299760908,
            -0.2423473155,
            0.1211736577,
            -1.992079612,
            0.6895660195,
            0.8428029128,
            -0.0399717558,
            2.5581923705,
            -1.0392656505,
            0.4212799668,
            -0.5617066224,
            1.4744798837,
        ],
    ),
    "l0": (L0(0.5), [1.7, 0.0, 0.0, -2.6, 0.9, 1.1, 0.0, 3.2, -1.3, 0.0, 0.0, 2.1]),
    "l2_norm": (
        L2Norm(0.5),
        [
            1.5741872805,
            -0.3703970072,
            0.1851985036,
            -2.4075805466,
            0.8333932661,
            1.0185917697,
            -0.0462996259,
            2.9631760574,
            -1.2037902733,
            0.5555955108,
            -0.7407940143,
            1.9445842876,
        ],
    ),
    "nuclear": (
        Nuclear(0.5, matrices=ONE),
        [
            1.4297009641,
            -0.4697105428,
            0.3720195947,
            -2.3708971183,
            0.6614673589,
            0.9774771286,
            -0.0813912102,
            2.9048645785,
            -1.1466788336,
            0.4719192954,
            -0.4700220537,
            1.9941580988,
        ],
    ),
    "nuclear_ball": (
        NuclearBall(2.0, matrices=ONE),
        [
            0.268927318,
            -0.2970253786,
            0.1344616992,
            -1.1146978154,
            -0.2810142207,
            0.3103751448,
            -0.1405050625,
            1.164797761,
            -0.2286132802,
            0.25249925,
            -0.1143049741,
            0.9475970158,
        ],
    ),
    "l1_ball": (L1Ball(2.0), [0.0, 0.0, 0.0, -0.6333333333, 0.0, 0.0, 0.0, 1.2333333333, 0.0, 0.0, 0.0, 0.1333333333]),
    "simplex": (Simplex(2.0), [0.0333333333, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.5333333333, 0.0, 0.0, 0.0, 0.4333333333]),
    "box": (Box(-0.5, 1.0), [1.0, -0.4, 0.2, -0.5, 0.9, 1.0, -0.05, 1.0, -0.5, 0.6, -0.5, 1.0]),
    "sparse_group_lasso": (
        SparseGroupLasso(0.3, 0.7, sizes=THREES, scale="none"),
        [
            0.903332743,
            -0.0989953691,
            0.0,
            -1.851119872,
            0.5176860659,
            0.6745606313,
            0.0,
            2.4327859107,
            -0.8712003599,
            0.2579524977,
            -0.4012594408,
            1.3327545713,
        ],
    ),
    "tv": (TV(0.5), [1.3, -0.1, -0.1, -1.8, 0.65, 0.65, 0.65, 2.4, -0.5, -0.1, -0.1, 1.7]),
}


@pytest.mark.parametrize(("h", "expected"), GOLDEN.values(), ids=GOLDEN)
def test_prox_is_the_libraries(h, expected):
    assert h.prox(X, 0.8).tolist() == pytest.approx(expected, abs=2e-10)
