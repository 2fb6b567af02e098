"""What every regulariser must do, over the registry."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcef.core.errors import ConfigError
from fedcef.regularizers import (
    L0,
    L1,
    REGULARIZERS,
    ElasticNet,
    Simplex,
    Zero,
    soft_threshold,
)

from .cases import (
    BOUNDED,
    CAPTURED,
    CASES,
    CONSTRAINTS,
    DIM,
    FUNCTIONS,
    SUMS,
    WEAKLY_CONVEX,
    WITH_SUBGRADIENTS,
    both_types,
    close,
    every,
    every_case,
    every_step,
    is_constraint,
    model_value,
    points,
    strong,
)


@every_step
@every_case
def test_prox_is_no_worse_than_any_other_point(h, step):
    for x in points(5):
        best = h.prox(x, step)
        others = torch.cat([best + size * points(300, seed=9) for size in (1e-4, 1e-2, 0.3, 3)])
        others = torch.cat([others, x.unsqueeze(0), torch.zeros(1, DIM), best * torch.linspace(-1, 2, 31)[:, None]])
        others = torch.cat([others, h.prox(others, 0.3)])  # for constraints: points inside
        assert float(model_value(h, best, x, step)) <= float(model_value(h, others, x, step).min()) + 1e-12


@pytest.mark.parametrize("step", [0.05, 0.8, 2.0, 2.8, 4.0, 9.0])
@pytest.mark.parametrize("name", SUMS)
def test_prox_is_the_argmin_entry_by_entry(name, step):
    """Against a grid and a finer grid around its best point; mcp and scad also beyond their largest step."""
    h = strong(REGULARIZERS[name])
    for x in torch.linspace(-4, 4, 81, dtype=torch.float64).view(-1, 1):
        found = h.prox(x, step)
        coarse = torch.arange(-1000, 1001, dtype=torch.float64).view(-1, 1) * 0.005  # 0 is on it
        near = coarse[model_value(h, coarse, x, step).argmin()]
        fine = near + coarse / 500
        costs = model_value(h, fine, x, step)
        assert float(model_value(h, found, x, step)) <= float(costs.min()) + 1e-14
        if float((model_value(h, coarse, x, step) < costs.min() + 1e-4).sum()) <= 10:  # no second minimum elsewhere
            close(found, fine[costs.argmin()], 2e-5)


@every_step
@every(WEAKLY_CONVEX)
def test_three_point_inequality(h, step):
    """h(p) + (|p - x|² + (1 - ρ·step)·|u - p|²)/(2·step) <= h(u) + |u - x|²/(2·step) for p = prox(x) and any u."""
    x, u = points(200), points(200, seed=1) * 2
    p = h.prox(x, step)
    for other in (u, h.prox(u, 0.3)):
        bowl = (1 - h.weak_convexity * step) * (other - p).square().sum(-1) / (2 * step)
        assert bool((model_value(h, p, x, step) + bowl <= model_value(h, other, x, step) + 1e-11).all())


@every_step
@every(WEAKLY_CONVEX)
def test_prox_is_firmly_non_expansive(h, step):
    """(1 - ρ·step)·|p - q|² <= ⟨p - q, x - y⟩; ρ = 0 for convex ones."""
    x, y = points(200) * 3, points(200, seed=1)
    p, q = h.prox(x, step), h.prox(y, step)
    stretch = 1 - h.weak_convexity * step
    assert bool((stretch * (p - q).square().sum(-1) <= ((p - q) * (x - y)).sum(-1) + 1e-11).all())
    assert bool((stretch * (p - q).norm(dim=-1) <= (x - y).norm(dim=-1) + 1e-11).all())


@every(FUNCTIONS)
def test_a_step_of_nothing_changes_nothing(h):
    x = points(3)
    assert torch.equal(h.prox(x, 0.0), x)
    assert torch.equal(h.prox(x, torch.zeros(1, dtype=x.dtype)), x)
    sizes = [float((h.prox(x, step) - x).norm()) for step in (1e-3, 1e-6, 1e-9)]
    assert sizes[2] < 1e-7
    assert sizes == sorted(sizes, reverse=True)


@every(CONSTRAINTS)
def test_a_constraint_does_not_ask_for_the_step(h):
    x = points(3)
    assert torch.equal(h.prox(x, 0.0), h.prox(x, 7.0))
    close(h.prox(h.prox(x, 1.0), 1.0), h.prox(x, 1.0))
    assert h.value(h.prox(x, 1.0)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("lead", [(4,), (2, 3), (0,)])
@every_case
def test_a_stack_is_done_row_by_row(h, lead):
    x = points(torch.Size(lead).numel()).reshape(*lead, DIM)
    value, prox = h.value(x), h.prox(x, 0.7)
    assert value.shape == lead
    assert prox.shape == x.shape
    for i, row in enumerate(x.reshape(-1, DIM)):
        close(prox.reshape(-1, DIM)[i], h.prox(row, 0.7))
        close(value.reshape(-1)[i], h.value(row))


@every_case
def test_a_step_may_be_a_tensor(h):
    x = points(3)
    close(h.prox(x, torch.tensor(0.7, dtype=torch.float64)), h.prox(x, 0.7))
    close(h.prox(x, torch.tensor([0.7], dtype=torch.float64)), h.prox(x, 0.7))
    steps = torch.tensor([[0.1], [0.7], [2.0]], dtype=torch.float64)
    each = torch.stack([h.prox(row, float(step)) for row, step in zip(x, steps, strict=True)])
    close(h.prox(x, steps), each)
    x = points(6).reshape(2, 3, DIM)
    close(h.prox(x, steps)[1], h.prox(x[1], steps))


@both_types
@every_case
def test_types_are_kept_and_the_input_is_left_alone(h, dtype):
    x = points(3).to(dtype)
    before = x.clone()
    assert h.prox(x, 0.7).dtype == dtype
    assert h.prox(x, torch.tensor(0.7)).dtype == dtype
    assert h.prox(x, torch.full((3, 1), 0.7, dtype=dtype)).dtype == dtype
    assert h.value(x).dtype == dtype
    close(h.prox(x, 0.7).double(), h.prox(points(3), 0.7), 1e-5)
    assert torch.equal(x, before)


@every_case
def test_value_is_not_negative_and_nothing_at_zero(h):
    assert bool((h.value(points(50)) >= 0).all())
    origin = torch.zeros(DIM)
    if isinstance(h, Simplex):  # the one set that does not contain it
        assert float(h.value(origin)) == math.inf
        assert float(h.prox(origin, 0.7).sum()) == pytest.approx(h.radius)
    else:
        assert float(h.value(origin)) == 0
        assert float(h.prox(origin, 0.7).abs().max()) == 0


@both_types
@every_case
def test_large_and_small_points_stay_finite(h, dtype):
    big, small = (1e30, 1e-30) if dtype == torch.float32 else (1e200, 1e-200)
    x = torch.cat([points(2) * big, points(2) * small, points(2) * torch.logspace(-25, 25, DIM)]).to(dtype)
    x = torch.cat([x, torch.zeros(1, DIM, dtype=dtype), big * torch.eye(DIM, dtype=dtype)[:1], -torch.ones_like(x[:1])])
    for step in (1e-12, 0.7):
        p = h.prox(x, step)
        assert bool(p.isfinite().all())
        if is_constraint(h):
            assert float(h.value(p).max()) == 0
        else:
            assert bool((p.abs() <= x.abs().amax(-1, keepdim=True) * (1 + 1e-5)).all())


@every_case
def test_a_row_that_is_no_number_ends_and_stays_so(h):
    x = points(3)
    x[1, 3] = math.nan
    p = h.prox(x, 0.7)
    assert bool(p[1].isnan().any())
    close(p[[0, 2]], h.prox(x[[0, 2]], 0.7))
    h.prox(torch.full((2, DIM), math.inf), 0.7)


def subgradients(h):
    """Points, some of them where h has a kink, and a subgradient at each."""
    x = points(100)
    x[0], x[1:20] = 0, h.prox(x[1:20], 0.7)
    return x, h.subgradient(x)


@every(WITH_SUBGRADIENTS)
def test_subgradients_support_h(h):
    (x, g), u = subgradients(h), points(100, seed=1) * 2
    bend = h.weak_convexity / 2 * (u - x).square().sum(-1)
    assert bool((h.value(u) + bend >= h.value(x) + (g * (u - x)).sum(-1) - 1e-11).all())


@every(BOUNDED)
def test_subgradients_keep_to_the_bound(h):
    (x, g), bound = subgradients(h), h.bounded_subgradient(DIM)
    moved = (x - h.prox(x, 0.3)) / 0.3  # a subgradient, too: at the proximal point
    assert float(g.norm(dim=-1).max()) <= bound * (1 + 1e-12)
    assert float(moved.norm(dim=-1).max()) <= bound * (1 + 1e-9)


@every(CONSTRAINTS)
def test_constraints_have_no_subgradient(h):
    with pytest.raises(ConfigError, match="has no subgradient outside its set; use a method with a proximal step"):
        h.subgradient(points(1))


def test_which_bounds_there_are():
    without = {name for name in CASES if CASES[name].bounded_subgradient(DIM) is None}
    kinds = ("elastic_net", "box", "simplex", "l1_ball", "nuclear_ball", "l0")
    assert without == {f"{kind}{how}" for kind in kinds for how in (" as it comes", ", strong")} | {"on some"}
    with pytest.raises(ConfigError, match="l0 is a count and has no useful subgradient"):
        L0().subgradient(points(1))


@every(CAPTURED)
def test_the_prox_reads_nothing_back_if_it_says_so(h):
    """Tensors without data: any look at a value, or a tensor left on another device, is an error."""
    x = torch.empty(3, DIM, device="meta")
    assert h.prox(x, 0.7).shape == x.shape
    assert h.prox(x, torch.empty(3, 1, device="meta")).shape == x.shape


def test_which_ones_say_so():
    waiting = {name for name, kind in REGULARIZERS.items() if not strong(kind).captures}
    assert waiting == {"nuclear", "nuclear_ball", "tv", "fused_lasso", "slope"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@both_types
@every_case
def test_cuda_does_the_same(h, dtype):
    x = points(5).to(dtype)
    steps = torch.tensor([[0.05], [0.3], [0.7], [0.8], [2.0]], dtype=dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    close(h.prox(x.cuda(), steps.cuda()).cpu(), h.prox(x, steps), tolerance)
    close(h.prox(x.cuda(), 0.7).cpu(), h.prox(x, 0.7), tolerance)
    close(h.value(x.cuda()).cpu(), h.value(x), tolerance)


# The soft threshold


def test_zero_returns_its_input():
    x = points(2)
    assert Zero().prox(x, 5.0) is x


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    x=st.floats(-1e6, 1e6, width=32),
    threshold=st.floats(0, 1e6, width=32),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_soft_threshold_by_its_formula(x, threshold, dtype):
    entry = torch.tensor([x], dtype=getattr(torch, dtype))
    size = np.abs(entry.numpy()) - np.asarray(threshold, dtype=dtype)
    expected = np.sign(entry.numpy()) * np.maximum(size, 0)
    assert soft_threshold(entry, threshold).numpy() == expected
    assert soft_threshold(entry, torch.tensor(threshold, dtype=entry.dtype)).numpy() == expected


def test_the_threshold_itself_becomes_zero():
    assert L1(0.5).prox(torch.tensor([0.25, -0.25, 0.25000003]), 0.5).tolist()[:2] == [0, 0]


def test_semigroup_of_soft_thresholds():
    x = points(20)
    twice = L1(0.5).prox(L1(0.5).prox(x, 0.3), 0.9)
    assert torch.allclose(twice, L1(0.5).prox(x, 1.2), rtol=0, atol=1e-15)


def test_optimality_of_the_elastic_net():
    """(x - p)/step is a subgradient at p."""
    h, x, step = ElasticNet(0.4, 0.3), points(20), 0.6
    p = h.prox(x, step)
    residual = (x - p) / step - 0.3 * p
    assert torch.allclose(residual[p != 0], 0.4 * p[p != 0].sign(), rtol=0, atol=1e-13)
    assert bool((residual[p == 0].abs() <= 0.4 + 1e-13).all())
    assert bool((p == 0).any())
