"""What every proximal operator must do, over the registry, and what each one does."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedcef import rng
from fedcef.regularizers import L1, REGULARIZERS, ElasticNet, OnParameters, Regularizer, Zero, soft_threshold

DIM = 12
STEPS = [0.05, 0.8]


def strong(kind: type[Regularizer]) -> Regularizer:
    """With weights at which something happens to vectors of size one; everything else as it comes."""
    return kind(**{f.name: 0.5 for f in fields(kind) if f.name in ("weight", "ridge")})


CASES = {
    **{f"{name} as it comes": kind() for name, kind in REGULARIZERS.items()},
    **{f"{name}, strong": strong(kind) for name, kind in REGULARIZERS.items()},
    "on some": OnParameters(ElasticNet(0.4, 0.9), torch.tensor([0, 3, 4, 11])),
}
every_case = pytest.mark.parametrize("h", CASES.values(), ids=CASES)
every_step = pytest.mark.parametrize("step", STEPS)


def points(count: int, seed: int = 0, dim: int = DIM) -> torch.Tensor:
    return rng.normal(rng.fold(rng.seed_key(seed), torch.arange(count)), dim)


def model_value(h: Regularizer, u: torch.Tensor, x: torch.Tensor, step: float) -> torch.Tensor:
    """What the proximal operator minimises over u."""
    return h.value(u) + (u - x).square().sum(-1) / (2 * step)


@every_step
@every_case
def test_prox_is_no_worse_than_any_other_point(h, step):
    for x in points(5):
        best = h.prox(x, step)
        others = torch.cat([best + size * points(300, seed=9) for size in (1e-4, 1e-2, 0.3, 3)])
        others = torch.cat([others, x.unsqueeze(0), torch.zeros(1, DIM), best * torch.linspace(-1, 2, 31)[:, None]])
        assert float(model_value(h, best, x, step)) <= float(model_value(h, others, x, step).min()) + 1e-14


@every_step
@every_case
def test_prox_is_the_argmin_entry_by_entry(h, step):
    """Against scipy's scalar minimisation, where the regulariser is a sum over entries."""
    if isinstance(h, OnParameters):
        h = h.inner
    x = points(1)[0]
    if not torch.allclose(h.value(x), h.value(x.unsqueeze(-1)).sum()):
        pytest.skip("not a sum over entries")
    for entry in torch.linspace(-3, 3, 25, dtype=torch.float64):
        found = float(h.prox(entry.view(1), step))

        def cost(u, entry=entry):
            return float(model_value(h, torch.tensor([u], dtype=torch.float64), entry.view(1), step))

        grid = np.linspace(-4, 4, 161)
        near = grid[np.argmin([cost(u) for u in grid])]
        least = minimize_scalar(cost, bounds=(near - 0.1, near + 0.1), method="bounded", options={"xatol": 1e-10})
        assert found == pytest.approx(least.x, abs=1e-6)
        assert cost(found) <= least.fun + 1e-14


@every_step
@every_case
def test_three_point_inequality(h, step):
    """h(p) + (|p - x|² + |u - p|²)/(2·step) <= h(u) + |u - x|²/(2·step) for p = prox(x) and any u."""
    x, u = points(200), points(200, seed=1) * 2
    p = h.prox(x, step)
    left = model_value(h, p, x, step) + (u - p).square().sum(-1) / (2 * step)
    assert bool((left <= model_value(h, u, x, step) + 1e-12).all())


@every_step
@every_case
def test_prox_is_firmly_non_expansive(h, step):
    x, y = points(200) * 3, points(200, seed=1)
    p, q = h.prox(x, step), h.prox(y, step)
    inner = ((p - q) * (x - y)).sum(-1)
    assert bool(((p - q).square().sum(-1) <= inner + 1e-12).all())
    assert bool(((p - q).norm(dim=-1) <= (x - y).norm(dim=-1) + 1e-12).all())


@every_case
def test_a_step_of_nothing_changes_nothing(h):
    x = points(3)
    assert torch.equal(h.prox(x, 0.0), x)
    sizes = [float((h.prox(x, step) - x).norm()) for step in (1e-3, 1e-6, 1e-9)]
    assert sizes[2] < 1e-7
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("lead", [(4,), (2, 3), (0,)])
@every_case
def test_a_stack_is_done_row_by_row(h, lead):
    x = points(torch.Size(lead).numel()).reshape(*lead, DIM)
    value, prox = h.value(x), h.prox(x, 0.7)
    assert value.shape == lead
    assert prox.shape == x.shape
    flat = x.reshape(-1, DIM)
    for i, row in enumerate(flat):
        assert torch.equal(prox.reshape(-1, DIM)[i], h.prox(row, 0.7))
        assert torch.allclose(value.reshape(-1)[i], h.value(row), rtol=1e-14, atol=0)


@every_case
def test_a_step_may_be_a_tensor(h):
    x = points(3)
    assert torch.equal(h.prox(x, torch.tensor(0.7, dtype=torch.float64)), h.prox(x, 0.7))
    steps = torch.tensor([[0.1], [0.7], [2.0]], dtype=torch.float64)
    each = torch.stack([h.prox(row, float(step)) for row, step in zip(x, steps, strict=True)])
    assert torch.equal(h.prox(x, steps), each)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@every_case
def test_types_are_kept_and_the_input_is_left_alone(h, dtype):
    x = points(3).to(dtype)
    before = x.clone()
    assert h.prox(x, 0.7).dtype == dtype
    assert h.prox(x, torch.tensor(0.7)).dtype == dtype
    assert h.value(x).dtype == dtype
    assert torch.equal(x, before)


@every_case
def test_value_is_not_negative_and_nothing_at_zero(h):
    assert bool((h.value(points(50)) >= 0).all())
    assert float(h.value(torch.zeros(DIM))) == 0


# Values and formulas


def test_values():
    x = torch.tensor([[3.0, -4.0], [0.5, 0.0]], dtype=torch.float64)
    assert Zero().value(x).tolist() == [0, 0]
    assert L1(0.25).value(x).tolist() == [1.75, 0.125]
    assert ElasticNet(0.25, 0.5).value(x).tolist() == [1.75 + 6.25, 0.125 + 0.0625]


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeros_are_exact(dtype):
    x = (points(4) * 0.1).to(dtype)
    step = 0.37
    for h in (L1(0.3), ElasticNet(0.3, 0.2)):
        p = h.prox(x, step)
        small = x.abs() < step * 0.3 * (1 - 1e-6)
        assert 0 < int(small.sum()) < small.numel()
        assert bool((p[small] == 0).all())
        assert bool((p[x.abs() > step * 0.3 * (1 + 1e-6)] != 0).all())


def test_the_threshold_itself_becomes_zero():
    assert L1(0.5).prox(torch.tensor([0.25, -0.25, 0.25000003]), 0.5).tolist()[:2] == [0, 0]


def test_semigroup_of_soft_thresholds():
    x = points(20)
    twice = L1(0.5).prox(L1(0.5).prox(x, 0.3), 0.9)
    assert torch.allclose(twice, L1(0.5).prox(x, 1.2), rtol=0, atol=1e-15)


def test_moreau_s_identity():
    """x = prox_{t·h}(x) + t·prox_{h*/t}(x/t), where h* of the l1 norm is the indicator of a box."""
    x, step, weight = points(20), 0.7, 0.9
    dual = torch.clamp(x / step, -weight, weight)
    assert torch.allclose(L1(weight).prox(x, step) + step * dual, x, rtol=0, atol=1e-15)


def test_elastic_net_without_one_of_its_parts():
    x = points(5)
    assert torch.equal(ElasticNet(0.4, 0.0).prox(x, 0.8), L1(0.4).prox(x, 0.8))
    assert torch.allclose(ElasticNet(0.0, 0.4).prox(x, 0.8), x / 1.32, rtol=1e-15, atol=0)


def test_optimality_of_the_elastic_net():
    """(x - p)/step is a subgradient at p."""
    h, x, step = ElasticNet(0.4, 0.3), points(20), 0.6
    p = h.prox(x, step)
    residual = (x - p) / step - 0.3 * p
    assert torch.allclose(residual[p != 0], 0.4 * p[p != 0].sign(), rtol=0, atol=1e-13)
    assert bool((residual[p == 0].abs() <= 0.4 + 1e-13).all())
    assert bool((p == 0).any())


# On some of the parameters


@pytest.mark.parametrize("name", REGULARIZERS)
def test_on_parameters_acts_on_the_chosen_entries_only(name):
    h = strong(REGULARIZERS[name])
    chosen = torch.tensor([0, 2, 11])
    rest = [i for i in range(DIM) if i not in chosen.tolist()]
    some = OnParameters(h, chosen)
    x = points(4)
    before = x.clone()
    p = some.prox(x, 0.8)
    assert torch.equal(p[:, rest], x[:, rest])
    assert torch.equal(p[:, chosen], h.prox(x[:, chosen], 0.8))
    assert torch.equal(some.value(x), h.value(x[:, chosen]))
    assert torch.equal(x, before)


def test_on_all_parameters_is_the_regularizer_itself():
    x = points(3)
    everywhere = OnParameters(L1(0.5), torch.arange(DIM))
    assert torch.equal(everywhere.prox(x, 0.8), L1(0.5).prox(x, 0.8))
    assert torch.equal(everywhere.value(x), L1(0.5).value(x))
