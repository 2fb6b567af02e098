"""Messages that add up: grid, range, rotation and draw are everyone's, and a sum is exact in any order."""

import math

import pytest
import torch

from fedcef.compressors.grid import Grid
from fedcef.compressors.on_grid import NeedsSingleMessages, OnGrid, Summed
from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Key, round_key
from fedcef.wire import FrameKind, WireError, decode, encode, mean, rotate

GRIDS = {
    "plain": {"block": 0},
    "rotated": {"block": 16},
    "drawn": {"block": 0, "ratio": 0.3},
    "both": {"block": 16, "ratio": 0.3},
    "unbiased": {"block": 16, "ratio": 0.3, "unbiased": True},
    "clipped": {"block": 16, "clip": 0.5},
}
every_grid = pytest.mark.parametrize("name", GRIDS)
DIM = 100


def some(count, dim=DIM, size=0.2):
    return size * rng.normal(rng.fold(rng.seed_key(1), torch.arange(count)), dim).float()


def keys(count, round_=0):
    return round_key(0, round_, torch.arange(count))


def test_a_step_is_the_power_of_two_that_reaches_the_range():
    assert [Grid(range=r, bits=3).step for r in (3.0, 3.1, 1.5, 0.4)] == [1.0, 2.0, 0.5, 0.25]
    assert Grid(range=127 / 64).step == 1 / 64  # just reaches it


def test_a_sum_fits_and_one_more_client_would_not():
    for bits in (2, 4, 8):
        largest = (1 << bits - 1) - 1
        for clients in (1, 2, 3, 10, 100, 1000):
            width = Grid(range=1.0, bits=bits, clients=clients).width
            assert 2**width >= 2 * clients * largest + 1
            assert width == 2 or 2 ** (width - 1) < 2 * clients * largest + 1
    assert [Grid(range=1.0, bits=8, clients=s).width for s in (1, 10, 50, 100)] == [8, 12, 14, 15]


def test_sums_beyond_24_bits_are_refused():
    Grid(range=1.0, bits=16, clients=256)
    with pytest.raises(ConfigError, match=r"Sums of 257 numbers of 16 bits take 25; at most 24 are exact.  Take fewer"):
        Grid(range=1.0, bits=16, clients=257)


@every_grid
def test_the_sum_of_numbers_is_the_sum_of_vectors(name):
    """In any order, from a stack, from single payloads that went over the wire, and from the numbers alone."""
    grid = Grid(range=1.0, clients=7, **GRIDS[name])
    payload = grid.compress(some(7), keys(7))
    rows = [decode(encode({"x": row}, FrameKind.UP, 0)).message["x"] for row in payload.rows()]
    whole = sum(row.steps.long() for row in rows)
    alone = Summed(OnGrid(whole.float(), *(getattr(rows[0], f) for f in FIELDS)), 7)
    for other in (rows, rows[::-1], alone):
        assert torch.equal(mean(other), mean(payload))
    if not grid.block:  # without a rotation the decoded vectors add up exactly, too
        assert torch.equal(payload.dense().sum(0), payload.total())
    assert not alone.relayable


FIELDS = ("key", "dim", "block", "bits", "exponent", "unbiased")


@every_grid
def test_what_is_counted_is_what_is_sent(name):
    grid = Grid(range=1.0, clients=20, bits=6, **GRIDS[name])
    payload = grid.compress(some(3), keys(3))
    for i, (row, size) in enumerate(zip(payload.rows(), payload.nbytes().tolist(), strict=True)):
        assert len(row.encode()) == size
        assert grid.compress(some(3)[i], Key(keys(3).shared, keys(3).own[i])).encode() == row.encode()
        assert torch.equal(decode(encode({"x": row}, FrameKind.UP, 0)).message["x"].dense(), payload.dense()[i])
    assert (
        size - math.ceil(payload.steps.shape[-1] * grid.width / 8) == 50
    )  # the head, the name of the form and the grid


def test_rounding_is_unbiased_within_the_range_and_cut_off_beyond():
    x = torch.linspace(-1, 1, DIM).repeat(4000, 1)
    decoded = Grid(range=1.0, bits=3, block=0).compress(x, keys(4000)).dense().double()
    assert float((decoded.mean(0) - x[0]).abs().max()) < 5 * 0.25 / 4000**0.5
    far = Grid(range=1.0, bits=3, block=0).compress(5 * x[:2], keys(2)).dense()
    assert float(far.max()) == 1.5  # three steps of a half
    assert float(far.min()) == -1.5


def test_unbiased_draws():
    x = some(1, 64)[0]
    grid = Grid(range=1.0, bits=16, block=16, ratio=0.25, unbiased=True)
    decoded = torch.stack([grid.compress(x, round_key(0, t, torch.tensor(0))).dense() for t in range(300)])
    assert float((decoded.mean(0) - x).abs().max()) < 5.5 * float(decoded.std(0).max()) / 300**0.5


def test_all_clients_of_a_round_draw_the_same_entries_and_other_rounds_others():
    grid = Grid(range=1.0, block=0, ratio=0.2)
    sent = [grid.compress(some(3) + 1, keys(3, t)).dense() != 0 for t in range(3)]
    assert all(torch.equal(row, rows[0]) for rows in sent for row in rows)
    assert int(sent[0][0].sum()) == 20
    assert not torch.equal(sent[0], sent[1])


@pytest.mark.parametrize("size", [1e-3, 0.05, 10.0])
def test_what_is_clipped_stays_within_the_bound_after_rounding(size):
    grid = Grid(range=0.5, bits=6, block=16, clip=0.5)
    payload = grid.compress(some(500, size=size), keys(500))
    norms = (payload.steps.double() * grid.step).norm(dim=-1)
    bound = grid.stretched(DIM)
    assert float(norms.max()) <= bound < grid.clip + grid.step * payload.steps.shape[-1] ** 0.5
    assert float(payload.dense().double().norm(dim=-1).max()) <= bound * (1 + 1e-6)


def test_a_vector_that_rounding_would_make_too_long_is_rounded_towards_zero():
    """A bound below what rounding needs, as if luck were that bad."""

    class Tight(Grid):
        def stretched(self, dim):
            return 0.48

    x = torch.full((DIM,), 0.049)
    grid = Tight(range=0.2, bits=5, block=0, clip=0.5)
    steps = grid.compress(x, Key(keys(1).shared, keys(1).own[0])).steps
    assert torch.equal(steps, (x / grid.step).trunc())
    assert float(steps.norm() * grid.step) <= 0.48


def test_what_is_not_finite_is_not_sent():
    for value in (torch.nan, torch.inf):
        x = some(2)
        x[0, 99] = value
        payload = Grid(range=1.0, ratio=0.1).compress(x, keys(2))
        assert not bool(payload.dense()[0].isfinite().any())
        assert bool(payload.dense()[1].isfinite().all())
        with pytest.raises(WireError, match="not finite"):
            payload.rows()[0].encode()


def test_the_rotation_is_the_wire_formats():
    x, key = some(2), keys(2)
    payload, step = Grid(range=4.0, bits=16, block=32).compress(x, key), 2.0**-12
    torch.testing.assert_close(payload.steps * step, rotate(x, key.shared, 32), atol=step, rtol=0)
    torch.testing.assert_close(payload.dense(), x, atol=1e-3, rtol=0)


def test_frames_that_are_no_grid_are_refused():
    data = bytearray(Grid(range=1.0, block=16).compress(some(1)[0], Key(keys(1).shared, keys(1).own[0])).encode())
    at = len(data) - 112 - 17  # the fields
    assert data[at] == 5  # blocks of 16
    none = OnGrid(torch.zeros(0), torch.tensor(5), DIM, 0, 8, -3)  # no entries of a vector that has some
    with pytest.raises(WireError, match="0 entries cannot be drawn from a vector of dimension 100"):
        decode(encode({"x": none}, FrameKind.UP, 0))
    for place, value in ((at, 18), (at + 1, 25), (at + 1, 1), (at + 3, 120), (at + 5, 255)):
        bad = bytearray(data)
        bad[place] = value
        with pytest.raises(WireError):
            decode(encode({"x": _Raw(bytes(bad))}, FrameKind.UP, 0))


class _Raw:
    """Bytes in the place of a payload."""

    def __init__(self, data):
        self.data = data

    def encode_given(self, context):
        return self.data


def test_of_a_sum_there_are_no_rows():
    total = Summed(Grid(range=1.0).compress(some(3), keys(3)).summed(), 3)
    for look in (total.rows, total.dense, total.nbytes, total.paper_nbytes, total.encode):
        with pytest.raises(NeedsSingleMessages):
            look()
