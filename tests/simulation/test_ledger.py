"""What is counted: the paper's gigabytes to the byte, and partial participation by hand."""

import pytest
import torch

from fedcef.compressors import RandK, TopK
from fedcef.core.rng import round_key
from fedcef.simulation.ledger import Column, Ledger, Sizes
from fedcef.wire import Dense, FrameKind, Nonzeros, Sparse, encode, frame_nbytes, frame_paper_nbytes

CPU = torch.device("cpu")


def of_shape(*shape):
    """A tensor that has a shape but takes no memory."""
    return torch.zeros(()).expand(shape)


def sparse(n, dim, count):
    return Sparse(of_shape(n, count), torch.zeros((), dtype=torch.int64).expand(n, count), dim)


def paper_total(n, rounds, dim, up):
    """The paper's count of a run in which the server sends z̃ to everyone."""
    column, everyone = Column.empty(n, CPU), torch.arange(n)
    down, replica = {"z_tilde": Dense(of_shape(dim))}, {"z": Dense(of_shape(dim)), "c": Dense(of_shape(dim))}
    sizes = Sizes(*(frame_paper_nbytes(message) for message in ({"delta": up}, down, replica)))
    for _ in range(rounds):
        column = column.add(sizes, everyone)
    assert int(column.log) == 4 * dim * rounds
    assert column.have.tolist() == [4 * dim * rounds] * n
    return int(column.up) + int(column.down)


MNIST = {"n": 10, "rounds": 65, "dim": 421_642}
CIFAR10 = {"n": 10, "rounds": 400, "dim": 4_460_106}


@pytest.mark.parametrize(("run", "total"), [(MNIST, 2_192_538_400), (CIFAR10, 142_723_392_000)])
def test_the_paper_s_gigabytes_without_compression(run, total):
    assert total == 8 * run["dim"] * run["n"] * run["rounds"]
    assert paper_total(**run, up=Dense(of_shape(run["n"], run["dim"]))) == total


@pytest.mark.parametrize(
    ("run", "ratio", "count", "total", "gigabytes"),
    [
        (MNIST, 0.01, 4216, 1_118_192_400, 1.1182),
        (CIFAR10, 0.01, 44_601, 72_788_928_000, 72.7889),
        (CIFAR10, 0.1, 446_010, 85_634_016_000, 85.634),
    ],
)
def test_the_paper_s_gigabytes_with_top_k(run, ratio, count, total, gigabytes):
    assert TopK(ratio=ratio).count(run["dim"]) == count
    assert paper_total(**run, up=sparse(run["n"], run["dim"], count)) == total
    assert round(total / 1e9, 4) == gigabytes
    assert total == (8 * count + 4 * run["dim"]) * run["n"] * run["rounds"]


def test_full_participation_is_one_frame_for_each_client_and_round():
    n, dim, ledger = 3, 40, Ledger.empty(3, CPU)
    everyone = torch.arange(n)
    expected = {"wire_up_bytes": 0, "wire_down_bytes": 0, "paper_up_bytes": 0, "paper_down_bytes": 0}
    for t in range(5):
        x = torch.randn(n, dim, generator=torch.Generator().manual_seed(t))
        kind = RandK(ratio=0.2) if t % 2 else TopK(ratio=0.2)
        up = {"delta": kind.compress(x, round_key(0, t, everyone))}
        down = {"increment": Nonzeros(up["delta"].dense().mean(0))}
        ledger = ledger.add_round(up, down, {"z": torch.ones(dim), "c": torch.ones(dim)}, everyone)
        expected["wire_up_bytes"] += sum(len(encode({"delta": p}, FrameKind.UP, t)) for p in up["delta"].rows())
        expected["wire_down_bytes"] += n * len(encode(down, FrameKind.DOWN, t))
        expected["paper_up_bytes"] += n * 8 * (4 if t % 2 else 8)  # Rand-k sends no indices
        expected["paper_down_bytes"] += n * min(8 * int(down["increment"].dense().count_nonzero()), 4 * dim)
    assert ledger.totals() == expected
    assert all(type(total) is int for total in ledger.totals().values())


def test_partial_participation_by_hand():
    """Down-messages of 10, 20, 30 and 100 bytes, a snapshot of 50; clients come and go."""
    column = Column.empty(4, CPU)

    def add(up, down, listeners):
        nonlocal column
        column = column.add(Sizes(torch.tensor(up), torch.tensor(down), torch.tensor(50)), torch.tensor(listeners))
        return int(column.up), int(column.down)

    assert add([1, 2], 10, [0, 1]) == (3, 20)  # 0 and 1 get the only message there is
    assert add([4, 5], 20, [1, 2]) == (12, 20 + 20 + 30)  # 1 missed nothing; 2 missed the first
    assert column.have.tolist() == [10, 30, 30, 0]
    assert add([6, 7], 30, [0, 3]) == (25, 70 + 50 + 50)  # 0: 20 + 30, as much as a snapshot; 3: 60, so a snapshot
    assert column.have.tolist() == [60, 30, 30, 60]
    assert add([8, 9], 100, [0, 2]) == (42, 170 + 50 + 50)  # even who missed nothing takes the snapshot
    assert column.have.tolist() == [160, 30, 160, 60]
    assert add([0, 0], 10, [1, 2]) == (42, 270 + 50 + 10)
    assert int(column.log) == 170


def test_partial_participation_in_both_columns():
    """Messages of real payloads: two rounds missed cost two frames or a snapshot by each column's own sizes."""
    dim, ledger = 100, Ledger.empty(2, CPU)
    increment = torch.zeros(dim)
    increment[:30] = 1.0
    up, down = {"delta": Dense(torch.ones(1, dim))}, {"increment": Nonzeros(increment)}
    replica = {"z": torch.ones(dim)}
    for listeners in ([0], [0], [1]):
        ledger = ledger.add_round(up, down, replica, torch.tensor(listeners))
    frame = len(encode(down, FrameKind.DOWN, 0))
    snapshot = len(encode({"z": Dense(replica["z"])}, FrameKind.STATE, 0))
    assert frame < snapshot < 3 * frame
    assert ledger.totals() == {
        "wire_up_bytes": 3 * len(encode({"delta": Dense(torch.ones(dim))}, FrameKind.UP, 0)),
        "wire_down_bytes": 2 * frame + snapshot,
        "paper_up_bytes": 3 * 400,
        "paper_down_bytes": 2 * 240 + 400,
    }


def test_nobody_listens():
    column = Column.empty(3, CPU)
    nobody = torch.tensor([], dtype=torch.int64)
    column = column.add(Sizes(torch.tensor([5]), torch.tensor(7), torch.tensor(9)), nobody)
    assert (int(column.up), int(column.down), int(column.log)) == (5, 0, 7)


def test_counts_do_not_overflow_32_bits():
    column = Column.empty(1, CPU)
    size = frame_nbytes({"z": Dense(of_shape(2**31))})
    for _ in range(3):
        column = column.add(Sizes(size, size, size), torch.tensor([0]))
    assert int(column.up) == int(column.down) == 3 * int(size) > 2**34


def after(ledger, rounds):
    for t in rounds:
        up = {"delta": Dense(torch.ones(2, 10 + t))}
        ledger = ledger.add_round(up, {"z": Dense(torch.ones(10))}, {"z": torch.ones(10)}, torch.tensor([t % 3, 3]))
    return ledger


def test_a_restored_ledger_goes_on_as_if_nothing_had_happened():
    start = Ledger.empty(4, CPU)
    whole, first = after(start, range(6)), after(start, range(2))
    saved = {name: tensor.clone() for name, tensor in first.state().items()}
    assert set(saved) == {f"{c}_{f}" for c in ("wire", "paper") for f in ("up", "down", "log", "have")}
    second = Ledger.of(saved)
    assert second.totals() == first.totals()
    second = after(second, range(2, 6))
    assert second.totals() == whole.totals()
    assert all(torch.equal(tensor, whole.state()[name]) for name, tensor in second.state().items())


def test_a_ledger_is_a_value():
    ledger = after(Ledger.empty(4, CPU), range(2))
    before = {name: tensor.clone() for name, tensor in ledger.state().items()}
    after(ledger, range(2, 4))
    assert all(torch.equal(ledger.state()[name], before[name]) for name in before)


def test_the_start_is_free():
    assert set(Ledger.empty(3, CPU).totals().values()) == {0}
