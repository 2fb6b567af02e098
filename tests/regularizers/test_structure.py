"""What each kind of regulariser is for: exact zeros, groups, ranks, plateaus, feasible points; and its limits."""

import math

import pytest
import torch

from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.regularizers import (
    L0,
    L1,
    MCP,
    SCAD,
    SLOPE,
    TV,
    Box,
    ElasticNet,
    FusedLasso,
    GroupLasso,
    L1Ball,
    L2Norm,
    LInf,
    Nuclear,
    NuclearBall,
    Simplex,
    SparseGroupLasso,
    Zero,
)
from fedcef.regularizers.matrix import Matrix

from .cases import DIM, both_types, close, points, tensor


def test_values_by_hand():
    x = tensor(3, -4, 0.5, 0)
    expected = {
        Zero(): 0,
        L1(0.25): 1.875,
        ElasticNet(0.25, 0.5): 1.875 + 6.3125,
        L2Norm(2.0): 2 * math.sqrt(25.25),
        LInf(2.0): 8,
        GroupLasso(2.0, sizes=(2, 2)): 2 * math.sqrt(2) * (5 + 0.5),
        GroupLasso(2.0, sizes=(2, 1, 1), scale="none"): 2 * (5 + 0.5),
        GroupLasso(2.0, scale="none"): 2 * math.sqrt(25.25),
        SparseGroupLasso(1.0, 2.0, sizes=(2,), scale="none"): 7 + 10,
        Nuclear(2.0, matrices=(Matrix(0, 1, 2),)): 10,
        TV(2.0): 2 * (7 + 4.5 + 0.5),
        TV(2.0, lengths=(2, 2)): 2 * (7 + 0.5),
        FusedLasso(1.0, 2.0): 7.5 + 2 * 12,
        SLOPE(3.0, last=0.0): 3 * 4 + 2 * 3 + 1 * 0.5,
        Box(-4, 3): 0,
        Box(-3.9, 3): math.inf,
        Simplex(1.0): math.inf,
        L1Ball(7.5): 0,
        L1Ball(7.4): math.inf,
        NuclearBall(5.0, matrices=(Matrix(0, 1, 2),)): 0,
        L0(2.0): 6,
        MCP(1.0, 3.5): 3.5 / 2 + (3 - 9 / 7) + (0.5 - 0.25 / 7),
        SCAD(1.0, 3.5): 4.5 / 2 + (7 * 3 - 9 - 1) / 5 + 0.5,
    }
    for h, value in expected.items():
        assert float(h.value(x)) == pytest.approx(value, rel=1e-14), h
    assert float(Simplex(2.0).value(tensor(0.5, 0, 1.5))) == 0
    assert float(Simplex(2.0).value(tensor(-0.5, 1, 1.5))) == math.inf


# Zeros


@both_types
@pytest.mark.parametrize("h", [L1(0.3), ElasticNet(0.3, 0.2), MCP(0.3), SCAD(0.3)], ids=lambda h: type(h).__name__)
def test_small_entries_are_exactly_zero(h, dtype):
    x, step = (points(4) * 0.1).to(dtype), 0.37
    p = h.prox(x, step)
    small = x.abs() < step * 0.3 * (1 - 1e-6)
    assert 0 < int(small.sum()) < small.numel()
    assert bool((p[small] == 0).all())
    assert bool((p[x.abs() > step * 0.3 * (1 + 1e-6)] != 0).all())


@both_types
def test_l0_keeps_or_drops(dtype):
    x = points(4).to(dtype)
    p = L0(0.4).prox(x, 0.5)
    kept = x.abs() > math.sqrt(0.4)
    assert torch.equal(p[kept], x[kept])
    assert bool((p[~kept] == 0).all())
    assert bool(kept.any() & (~kept).any())


@pytest.mark.parametrize(("h", "limit"), [(MCP(0.3, 2.0), 0.6), (SCAD(0.3, 3.0), 0.9)])
def test_large_entries_are_left_alone(h, limit):
    x = points(20) * 2
    p = h.prox(x, 0.7)
    assert torch.equal(p[x.abs() > limit], x[x.abs() > limit])
    assert bool((p[x.abs() < limit].abs() < x[x.abs() < limit].abs()).all())


def test_concave_penalties_become_the_l1_norm():
    x = points(20)
    for h in (MCP(0.3, 1e9), SCAD(0.3, 1e9)):
        close(h.prox(x, 0.7), L1(0.3).prox(x, 0.7), 1e-8)
        close(h.value(x), L1(0.3).value(x), 1e-8)


def test_how_far_from_convex():
    assert (MCP(gamma=4.0).weak_convexity, MCP(gamma=4.0).largest_step) == (0.25, 4.0)
    assert (SCAD(a=5.0).weak_convexity, SCAD(a=5.0).largest_step) == (0.25, 4.0)
    assert (L0().weak_convexity, L0().largest_step) == (math.inf, 0)
    assert (L1().weak_convexity, L1().largest_step) == (0, math.inf)


@pytest.mark.parametrize("h", [MCP(0.5, 3.0), SCAD(0.5, 4.0)], ids=["mcp", "scad"])
def test_the_largest_step_is_where_the_prox_begins_to_jump(h):
    x = torch.linspace(0, 4, 400_001, dtype=torch.float64).unsqueeze(-1)
    assert float(h.prox(x, 2.9).diff(dim=0).max()) < 1e-3
    assert float(h.prox(x, 3.1).diff(dim=0).max()) > 0.1


# Groups


@both_types
def test_groups_are_zero_together(dtype):
    layout = Layout(("conv", "bias", "dense"), ((4, 3, 2, 2), (4,), (5, 4)))
    x = points(6, dim=layout.size).to(dtype) * 0.3
    h = GroupLasso(1.0).fit(layout)
    p = h.prox(x, 0.28)
    tensors, start = layout.unflatten(p), layout.unflatten(x)
    assert torch.equal(tensors["bias"], start["bias"])
    for name in ("conv", "dense"):
        groups, before = tensors[name].flatten(2), start[name].flatten(2)
        zero = before.norm(dim=-1) < 0.28 * math.sqrt(before.shape[-1])
        assert bool(zero.any() & (~zero).any())
        assert bool((groups[zero] == 0).all())
        assert bool((groups[~zero] != 0).all())
    assert h.bounded_subgradient(layout.size) == pytest.approx(math.sqrt(layout.size - 4))


def test_groups_by_input_and_by_tensor():
    layout = Layout(("kernel", "bias"), ((4, 3, 2), (4,)))
    x = points(2, dim=layout.size)
    kernel = x[:, :24].reshape(2, 4, 3, 2)
    by_input, by_tensor = (GroupLasso(0.7, by=by, scale="none").fit(layout) for by in ("input", "tensor"))
    close(by_input.value(x), 0.7 * kernel.square().sum((1, 3)).sqrt().sum(-1))
    close(by_tensor.value(x), 0.7 * kernel.square().sum((1, 2, 3)).sqrt())
    close(by_tensor.prox(x, 0.5)[:, :24], L2Norm(0.7).prox(x[:, :24], 0.5))
    pruned = by_input.prox(x, 3.2)[:, :24].reshape(2, 4, 3, 2)
    gone = kernel.square().sum((1, 3)).sqrt() <= 3.2 * 0.7
    assert bool(gone.any() & (~gone).any())
    assert bool((pruned.movedim(2, 1)[gone] == 0).all())
    assert by_input.bounded_subgradient(28) == pytest.approx(0.7 * math.sqrt(3))


def test_groups_in_the_limit():
    x = points(5)
    close(GroupLasso(0.5, sizes=(1,) * DIM).prox(x, 0.8), L1(0.5).prox(x, 0.8))
    close(SparseGroupLasso(0.5, 0.0).prox(x, 0.8), L1(0.5).prox(x, 0.8))
    sizes = (2, 4, 6)
    close(SparseGroupLasso(0.0, 0.5, sizes=sizes).prox(x, 0.8), GroupLasso(0.5, sizes=sizes).prox(x, 0.8))
    assert torch.equal(GroupLasso(9.0, sizes=(3, 4)).prox(x, 0.8)[:, 7:], x[:, 7:])  # in no group


def test_sparse_groups_are_sparse_within():
    p = SparseGroupLasso(0.6, 0.5, sizes=(4, 4, 4)).prox(points(50), 0.8).reshape(-1, 4)
    zeros = (p == 0).sum(-1)
    assert {0, 1, 4} <= set(zeros.tolist())


# Matrices


@both_types
def test_the_rank_is_the_number_of_large_singular_values(dtype):
    layout = Layout(("dense", "bias", "conv"), ((6, 5), (6,), (4, 3, 2, 2)))
    x = points(3, dim=layout.size).to(dtype)
    p = Nuclear(1.0).fit(layout).prox(x, 2.5)
    before, after = layout.unflatten(x), layout.unflatten(p)
    assert torch.equal(after["bias"], before["bias"])
    for name in ("dense", "conv"):
        old, new = (torch.linalg.svdvals(t[name].flatten(2)) for t in (before, after))
        tolerance = 100 * torch.finfo(dtype).eps
        torch.testing.assert_close(new, (old - 2.5).clamp(min=0), rtol=tolerance, atol=tolerance)
        assert torch.equal((new > 50 * tolerance).sum(-1), (old > 2.5).sum(-1))
    assert float(Nuclear(1.0).fit(layout).prox(x, 1e3)[:, :30].abs().max()) == 0
    assert Nuclear(2.0).fit(layout).bounded_subgradient(0) == 6.0  # 2·√(5 + 4)


def test_a_matrix_of_one_row_is_a_vector():
    x = points(4)
    close(Nuclear(0.5, matrices=(Matrix(0, 1, DIM),)).prox(x, 0.8), L2Norm(0.5).prox(x, 0.8))


def test_nuclear_ball():
    ball = NuclearBall(6.0, matrices=(Matrix(0, 3, 4),))
    x = points(8) * torch.linspace(0.2, 3, 8, dtype=torch.float64)[:, None]
    p = ball.prox(x, 1.0)
    old, new = (torch.linalg.svdvals(t.reshape(-1, 3, 4)) for t in (x, p))
    inside = old.sum(-1) <= 6
    assert 0 < int(inside.sum()) < 8
    assert torch.equal(p[inside], x[inside])
    close(new[~inside].sum(-1), torch.full_like(new[~inside, 0], 6.0))
    close(new[~inside], L1Ball(6.0).prox(old[~inside], 1.0))


def test_largest_entries_become_equal():
    p = LInf(1.0).prox(tensor(3, -2.5, 2, 0.1), 1.5)
    assert p.tolist() == [2, -2, 2, 0.1]
    assert LInf(1.0).prox(tensor(3, -2.5, 2, 0.1), 7.6).tolist() == [0, 0, 0, 0]


# Moreau's identity: x = prox_{t·h}(x) + (the projection onto t times the unit ball of the dual norm)


def test_moreau_s_identity():
    x, step, weight = points(20), 0.7, 0.9
    radius = step * weight
    close(L1(weight).prox(x, step) + Box(-radius, radius).prox(x, 1), x)
    close(LInf(weight).prox(x, step) + L1Ball(radius).prox(x, 1), x)
    to_ball = x / (x.norm(dim=-1, keepdim=True) / radius).clamp(min=1)
    close(L2Norm(weight).prox(x, step) + to_ball, x)
    groups = x.reshape(20, 4, 3)
    to_balls = groups / (groups.norm(dim=-1, keepdim=True) / radius).clamp(min=1)
    close(GroupLasso(weight, sizes=(3,) * 4, scale="none").prox(x, step) + to_balls.reshape(20, DIM), x)
    left, s, right = torch.linalg.svd(x.reshape(20, 3, 4), full_matrices=False)
    clipped = (left * s.clamp(max=radius).unsqueeze(-2)) @ right
    close(Nuclear(weight, matrices=(Matrix(0, 3, 4),)).prox(x, step) + clipped.reshape(20, DIM), x)


# Constraints


@both_types
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_projections_are_feasible_in_many_dimensions(dtype, scale):
    x = (points(2, dim=20_000) * scale).to(dtype)
    tolerance = 10 * torch.finfo(dtype).eps
    on_simplex, in_ball = Simplex(3.0).prox(x, 1), L1Ball(3.0).prox(x, 1)
    assert bool((on_simplex >= 0).all())
    for sums in (on_simplex.double().sum(-1), in_ball.double().abs().sum(-1)):
        assert sums.tolist() == pytest.approx([3, 3], rel=tolerance)
    assert bool((in_ball * x >= 0).all())
    assert bool(((on_simplex == 0).sum(-1) > 100).all())


def test_points_inside_do_not_move():
    x = points(5) * 0.1
    assert torch.equal(L1Ball(5.0).prox(x, 1), x)
    assert torch.equal(Box(-1, 1).prox(x, 1), x)
    assert torch.equal(Box(0, math.inf).prox(x, 1), x.clamp(min=0))
    inside = x.abs() / x.abs().sum(-1, keepdim=True)
    close(Simplex(1.0).prox(inside, 1), inside, 1e-15)


def test_a_box_needs_its_bounds_in_order():
    with pytest.raises(ConfigError, match=r"regularizer.lower is 2.0; it must not exceed regularizer.upper = 1.0."):
        Box(lower=2.0)
