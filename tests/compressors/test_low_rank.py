"""PowerSGD: which tensors become factors, and how close their product comes."""

import pytest
import torch

from fedcef.compressors import PowerSGD
from fedcef.compressors.orthonormal import orthonormal
from fedcef.core import rng
from fedcef.core.layout import Layout
from fedcef.core.rng import round_key
from fedcef.wire import LowRank

KEYS = [round_key(0, t, torch.tensor(0)) for t in range(200)]


def mean_error(compressor, matrix, draws=100):
    x = matrix.flatten()
    decoded = torch.stack([compressor.compress(x, key).dense() for key in KEYS[:draws]])
    return float(((decoded - x).square().sum(-1) / x.square().sum()).mean())


def of_shape(*shape, **options):
    return PowerSGD(**options).fit(Layout(("w",), (shape,)))


def normal(seed, *shape):
    return rng.normal(rng.seed_key(seed), torch.Size(shape).numel()).reshape(shape)


def test_convolutions_are_matrices_and_vectors_are_sent_as_they_are():
    layout = Layout(("conv", "bias", "small", "fc", "scalar"), ((16, 8, 3, 3), (16,), (2, 3), (10, 32), ()))
    x = normal(0, layout.size).float()
    payload = PowerSGD(rank=2).fit(layout).compress(x, KEYS[0])
    assert isinstance(payload, LowRank)
    assert payload.shapes == ((16, 72), 16, 6, (10, 32), 1)
    plain = torch.cat([torch.arange(1152, 1174), torch.arange(layout.size - 1, layout.size)])
    assert torch.equal(payload.dense()[plain], x[plain])
    assert torch.equal(payload.rest, x[plain])
    assert int(payload.nbytes()) == len(payload.encode()) < 4 * layout.size


def test_a_matrix_of_that_rank_is_sent_without_loss():
    matrix = normal(1, 30, 3) @ normal(2, 3, 40)
    decoded = of_shape(30, 40, rank=3).compress(matrix.flatten(), KEYS[0]).dense()
    torch.testing.assert_close(decoded.double(), matrix.flatten(), rtol=1e-5, atol=1e-5)


def test_a_matrix_of_lower_rank_is_sent_without_loss():
    matrix = (normal(1, 30, 1) @ normal(2, 1, 40)).float()
    decoded = of_shape(30, 40, rank=4).compress(matrix.flatten(), KEYS[0]).dense()
    torch.testing.assert_close(decoded, matrix.flatten(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 5])
@pytest.mark.parametrize("spectrum", ["flat", "two", "decaying"])
def test_the_bound_holds_for_any_spectrum(spectrum, rank):
    left, right = orthonormal(normal(3, 12, 12)), orthonormal(normal(4, 20, 12))
    values = {"flat": torch.ones(12), "two": torch.tensor([1.0] * 2 + [0.3] * 10), "decaying": 0.6 ** torch.arange(12)}
    matrix = left @ torch.diag(values[spectrum].double()) @ right.mT
    compressor = of_shape(12, 20, rank=rank)
    error, bound = mean_error(compressor, matrix), compressor.contraction(240)
    assert bound == pytest.approx(1 - rank / 12)
    assert error <= bound * (1 + 1e-6)
    if spectrum == "flat":
        assert error == pytest.approx(bound, rel=1e-5)  # attained: every direction is as good as another


def test_a_second_iteration_comes_closer():
    matrix = normal(5, 40, 2) @ normal(6, 2, 40) + 0.5 * normal(7, 40, 40)
    errors = [mean_error(of_shape(40, 40, rank=2, iterations=n), matrix, 30) for n in (1, 2, 6)]
    values = torch.linalg.svdvals(matrix).square()
    best = float(values[2:].sum() / values.sum())
    assert errors[0] > errors[1] > errors[2] > best * (1 - 1e-6)
    assert errors[2] == pytest.approx(best, rel=0.01)


def test_all_clients_start_alike():
    """So that clients with equal vectors send equal factors."""
    x = normal(8, 20, 20).flatten().float().repeat(3, 1)
    payload = of_shape(20, 20, rank=2).compress(x, round_key(0, 0, torch.arange(3)))
    assert torch.equal(payload.dense()[0], payload.dense()[2])


def test_without_a_layout_nothing_is_compressed():
    x = normal(9, 50).float()
    assert torch.equal(PowerSGD().compress(x, KEYS[0]).dense(), x)
    assert PowerSGD().contraction(50) == 0


@pytest.mark.parametrize("size", [1e30, 1e-42])
def test_products_neither_overflow_nor_vanish(size):
    matrix = (size * (normal(1, 12, 1) @ normal(2, 1, 12))).float()
    decoded = of_shape(12, 12, rank=1).compress(matrix.flatten(), KEYS[0]).dense()
    torch.testing.assert_close(decoded / size, matrix.flatten() / size, rtol=1e-2, atol=2e-3)


# Gram-Schmidt


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_columns_become_orthonormal_and_span_the_same(dtype):
    columns = normal(0, 3, 30, 6).to(dtype)
    columns[:, :, 3] = columns[:, :, 2] * (1 + 1e-3 * columns[:, :, 5])  # nearly dependent
    basis = orthonormal(columns)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(basis.mT @ basis, torch.eye(6, dtype=dtype).expand(3, 6, 6), rtol=0, atol=50 * eps)
    torch.testing.assert_close(basis @ (basis.mT @ columns), columns, rtol=0, atol=100 * eps)


def test_dependent_columns_become_zero():
    columns = normal(0, 30, 4).float()
    columns[:, 1], columns[:, 3] = 0.0, 2 * columns[:, 0] - columns[:, 2]
    basis = orthonormal(columns)
    assert basis.norm(dim=0).round(decimals=5).tolist() == [1, 0, 1, 0]
    assert not orthonormal(torch.zeros(5, 2)).any()


def test_nans_stay():
    columns = torch.ones(4, 2)
    columns[1, 1] = torch.nan
    assert bool(orthonormal(columns)[:, 1].isnan().all())
