"""The cosine transform of tiles: the matrix by definition, geometry, bytes, and what is kept."""

import math

import pytest
import torch

from fedcef.compressors import Cosines, DCTTopK, from_cosines
from fedcef.compressors.dct import cosines, divisor, to_cosines
from fedcef.core.layout import Layout
from fedcef.core.rng import round_key
from fedcef.wire import FrameKind, WireError, decode, encode

LAYOUT = Layout(("weight", "bias", "kernel"), ((12, 10), (7,), (4, 3, 2, 2)))
KEY = round_key(0, 0, torch.arange(3))


def test_the_transform_is_the_orthonormal_dct():
    x = torch.linspace(-1, 2, 6, dtype=torch.float64)
    by_hand = [
        math.sqrt((1 if k == 0 else 2) / 6) * sum(float(x[n]) * math.cos(math.pi * (n + 0.5) * k / 6) for n in range(6))
        for k in range(6)
    ]
    torch.testing.assert_close(cosines(6, x) @ x, torch.tensor(by_hand, dtype=torch.float64), rtol=0, atol=1e-14)
    for n in (1, 5, 64):
        b = cosines(n, x)
        torch.testing.assert_close(b @ b.mT, torch.eye(n, dtype=torch.float64), rtol=0, atol=1e-13)


def test_sides_of_tiles_are_divisors():
    assert [divisor(n, 64) for n in (64, 128, 100, 67, 7, 1)] == [64, 64, 50, 1, 7, 1]
    assert DCTTopK(chunk=5).fit(LAYOUT).geometry == ((12, 10, 4, 5), (1, 7, 1, 1), (4, 12, 4, 4))


def test_tiles_are_transformed_one_by_one_and_back():
    compressor = DCTTopK(chunk=5).fit(LAYOUT)
    x = torch.randn(3, LAYOUT.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = to_cosines(x, compressor.geometry)
    weight = LAYOUT.unflatten(x)["weight"]
    tile = cosines(4, x) @ weight[1, 4:8, 5:10] @ cosines(5, x).mT  # second row of tiles, second of two
    torch.testing.assert_close(y[1, 60:80], tile.flatten(), rtol=0, atol=1e-14)
    torch.testing.assert_close(from_cosines(y, compressor.geometry), x, rtol=0, atol=1e-14)


def test_the_largest_coefficients_are_kept():
    compressor = DCTTopK(chunk=5, kept=3).fit(LAYOUT)
    x = torch.randn(3, LAYOUT.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sent = compressor.compress(x, KEY)
    assert isinstance(sent, Cosines)
    y, found = to_cosines(x, compressor.geometry), sent.coefficients.dense()
    kept = found != 0
    assert torch.equal(found[kept], y[kept])
    assert kept[:, :120].reshape(3, 6, 20).sum(-1).unique().tolist() == [3]
    assert bool(kept[:, 120:127].all())  # tiles of one
    assert bool(
        (y.abs()[:, :20] * ~kept[:, :20]).amax(-1).le(y.abs()[:, :20].masked_fill(~kept[:, :20], 9).amin(-1)).all()
    )
    lost = (sent.dense() - x).square().sum(-1) / x.square().sum(-1)
    assert bool((lost <= compressor.contraction(LAYOUT.size)).all())
    assert compressor.contraction(LAYOUT.size) == pytest.approx(1 - 3 / 20)
    smooth = torch.linspace(0, 1, LAYOUT.size).repeat(3, 1)
    assert float((compressor.compress(smooth, KEY).dense() - smooth).norm() / smooth.norm()) < 0.03


@pytest.mark.parametrize("values", ["native", "bfloat16", "uniform4", "log2"])
def test_bytes_are_counted_and_decoded(values):
    compressor = DCTTopK(chunk=5, kept=3, values=values).fit(LAYOUT)
    sent = compressor.compress(torch.randn(3, LAYOUT.size, generator=torch.Generator().manual_seed(0)), KEY)
    for row, size, dense in zip(sent.rows(), sent.nbytes(), sent.dense(), strict=True):
        assert len(row.encode()) == int(size)
        back = decode(encode({"m": row}, FrameKind.UP, 0)).message["m"]
        assert torch.equal(back.dense(), dense)
        assert back.geometry == sent.geometry


def test_a_geometry_that_does_not_fit_is_refused():
    sent = DCTTopK(chunk=5, kept=3).fit(LAYOUT).compress(torch.randn(LAYOUT.size), round_key(0, 0, torch.tensor(0)))
    for wrong in (((12, 10, 4, 5),), ((12, 10, 5, 5), *sent.geometry[1:])):
        frame = encode({"m": Cosines(sent.coefficients, wrong)}, FrameKind.UP, 0)
        with pytest.raises(WireError, match=r"geometry of the tiles|must divide their tensors"):
            decode(frame)
