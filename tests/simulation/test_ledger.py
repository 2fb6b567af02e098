"""What is counted: the paper's gigabytes to the byte, and partial participation by hand."""

import pytest
import torch

from fedcef.compressors import RandK, TopK
from fedcef.core.rng import round_key
from fedcef.simulation.ledger import Column, Ledger, Sizes
from fedcef.simulation.network.counting import handed_out
from fedcef.simulation.snapshots import snapshot, whole
from fedcef.wire import (
    Dense,
    FrameKind,
    Nonzeros,
    Sparse,
    WireError,
    decode,
    encode,
    frame_nbytes,
    frame_paper_nbytes,
)
from fedcef.wire.forms.nonzeros import EveryBit

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
    sizes = Sizes(*(frame_paper_nbytes(message) for message in ({"delta": up}, down, replica, replica)))
    for _ in range(rounds):
        column = column.add(sizes, everyone)
    assert int(column.log) == 4 * dim * rounds
    assert column.have.tolist() == [4 * dim * rounds] * n
    assert int(column.catch_up) == 0
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


def played(ledger, up, down, replica, listeners):
    """The ledger after a round with these messages."""
    return ledger.add(*ledger.sizes(up, down, replica, listeners), listeners)


def test_full_participation_is_one_frame_for_each_client_and_round():
    n, dim, ledger = 3, 40, Ledger.empty(3, CPU)
    everyone = torch.arange(n)
    expected = dict.fromkeys(Ledger.empty(3, CPU).totals(), 0)
    for t in range(5):
        x = torch.randn(n, dim, generator=torch.Generator().manual_seed(t))
        kind = RandK(ratio=0.2) if t % 2 else TopK(ratio=0.2)
        up = {"delta": kind.compress(x, round_key(0, t, everyone))}
        down = {"increment": Nonzeros(up["delta"].dense().mean(0))}
        ledger = played(ledger, up, down, {"z": torch.ones(dim), "c": torch.ones(dim)}, everyone)
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
        column = column.add(Sizes(*map(torch.tensor, (up, down, 50, 50))), torch.tensor(listeners))
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
    assert int(column.catch_up) == 10 + 20 + 20 + 40  # what 2, 0 and 3, and at last 1 got beyond a fresh frame


def test_who_was_away_is_counted_apart_by_hand():
    """The replica takes 60 bytes with all its entries, and others without its zeros; messages take 30, then 70."""
    column = Column.empty(5, CPU)

    def add(down, snapshot, listeners):
        nonlocal column
        before = int(column.down), 0 if column.catch_up is None else int(column.catch_up)
        column = column.add(Sizes(torch.tensor([1]), *map(torch.tensor, (down, 60, snapshot))), torch.tensor(listeners))
        return int(column.down) - before[0], int(column.catch_up) - before[1]

    assert add(30, 20, [0, 1]) == (30 + 30, 0)  # nobody was away: a frame each, although a snapshot is shorter
    assert add(30, 55, [1, 2]) == (30 + 55, 25)  # 2 missed 60, and takes the snapshot of 55
    assert add(30, 65, [0, 1]) == (60 + 30, 30)  # 0 missed two frames, and they are shorter
    assert add(30, 40, [1, 3]) == (30 + 40, 10)  # 3 missed four
    assert add(70, 20, [1, 2]) == (60 + 20, 0)  # 1 gets the whole replica for a longer frame; 2 less than a fresh frame
    assert add(70, 65, [1, 4]) == (60 + 65, 0)
    assert column.have.tolist() == [90, 260, 190, 120, 260]
    assert add(10, 45, [0, 1, 2, 3, 4]) == (45 + 10 + 45 + 45 + 10, 3 * 35)  # everyone again; three had been away


def test_partial_participation_in_both_columns():
    """Messages of real payloads: two rounds missed cost two frames or a snapshot by each column's own sizes."""
    dim, ledger = 100, Ledger.empty(2, CPU)
    increment = torch.zeros(dim)
    increment[:30] = 1.0
    up, down = {"delta": Dense(torch.ones(1, dim))}, {"increment": Nonzeros(increment)}
    replica = {"z": torch.ones(dim)}
    for listeners in ([0], [0], [1]):
        ledger = played(ledger, up, down, replica, torch.tensor(listeners))
    frame = len(encode(down, FrameKind.DOWN, 0))
    dense = len(encode({"z": Dense(replica["z"])}, FrameKind.STATE, 0))
    assert frame < dense < 3 * frame
    assert ledger.totals() == {
        "wire_up_bytes": 3 * len(encode({"delta": Dense(torch.ones(dim))}, FrameKind.UP, 0)),
        "wire_down_bytes": 2 * frame + dense,
        "paper_up_bytes": 3 * 400,
        "paper_down_bytes": 2 * 240 + 400,
        "wire_catch_up_bytes": dense - frame,
        "paper_catch_up_bytes": 400 - 240,
    }


def test_a_snapshot_goes_without_its_zeros_to_who_was_away():
    dim, ledger = 1000, Ledger.empty(2, CPU)
    z = torch.zeros(dim)
    z[::50] = 1.5
    up, down = {"delta": Dense(torch.ones(1, dim))}, {"z": Dense(z)}
    for listeners in ([0], [0], [1]):
        ledger = played(ledger, up, down, {"z": z}, torch.tensor(listeners))
    frame, small = len(encode(down, FrameKind.DOWN, 0)), len(encode(snapshot({"z": z}), FrameKind.STATE, 3))
    assert small < frame / 20
    assert ledger.totals() == {
        "wire_up_bytes": 3 * len(encode({"delta": Dense(torch.ones(dim))}, FrameKind.UP, 0)),
        "wire_down_bytes": 2 * frame + small,
        "paper_up_bytes": 3 * 4 * dim,
        "paper_down_bytes": 2 * 4 * dim + 8 * 20,
        "wire_catch_up_bytes": 0,
        "paper_catch_up_bytes": 0,
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.5, 1.0])
def test_a_snapshot_keeps_every_bit(dtype, density):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3000, generator=draw, dtype=dtype) * (torch.rand(3000, generator=draw) < density)
    assert (x.signbit() & (x == 0)).any() or density == 1.0  # negative zeros, as a proximal operator may leave them
    for vector in (x, x.abs()):
        frame = encode(snapshot({"x": vector}), FrameKind.STATE, 1)
        decoded = decode(frame).message["x"].dense()
        assert decoded.numpy().tobytes() == vector.numpy().tobytes()
        stacked = snapshot({"x": torch.stack([vector, vector])})  # sizes as they are found on a GPU
        assert frame_nbytes(stacked).tolist() == 2 * [len(frame)]
        assert len(frame) <= frame_nbytes(whole({"x": vector}))
        assert [payload.encode() for payload in stacked["x"].rows()] == 2 * [snapshot({"x": vector})["x"].encode()]


def test_a_stack_is_no_snapshot():
    with pytest.raises(WireError, match="leading axes"):
        EveryBit(torch.zeros(2, 3)).encode()


def test_nobody_listens():
    column = Column.empty(3, CPU)
    nobody = torch.tensor([], dtype=torch.int64)
    column = column.add(Sizes(*map(torch.tensor, ([5], 7, 9, 9))), nobody)
    assert (int(column.up), int(column.down), int(column.log), int(column.catch_up)) == (5, 0, 7, 0)


def test_counts_do_not_overflow_32_bits():
    column = Column.empty(1, CPU)
    size = frame_nbytes({"z": Dense(of_shape(2**31))})
    for _ in range(3):
        column = column.add(Sizes(size, size, size, size), torch.tensor([0]))
    assert int(column.up) == int(column.down) == 3 * int(size) > 2**34


def after(ledger, rounds):
    for t in rounds:
        up = {"delta": Dense(torch.ones(2, 10 + t))}
        ledger = played(ledger, up, {"z": Dense(torch.ones(10))}, {"z": torch.ones(40)}, torch.tensor([t % 3, 3]))
    return ledger


def test_a_restored_ledger_goes_on_as_if_nothing_had_happened():
    start = Ledger.empty(4, CPU)
    whole, first = after(start, range(6)), after(start, range(2))
    saved = {name: tensor.clone() for name, tensor in first.state().items()}
    assert set(saved) == {f"{c}_{f}" for c in ("wire", "paper") for f in ("up", "down", "log", "have", "catch_up")}
    second = start.with_state(saved)
    assert second.totals() == first.totals()
    second = after(second, range(2, 6))
    assert second.totals() == whole.totals()
    assert all(torch.equal(tensor, whole.state()[name]) for name, tensor in second.state().items())


def test_a_ledger_of_an_earlier_version_goes_on():
    """It did not count catch-up, which begins at 0; all else is as if the ledger were new."""
    first = after(Ledger.empty(4, CPU), range(3))
    assert first.totals()["wire_catch_up_bytes"] > 0
    known = {name: tensor for name, tensor in first.state().items() if not name.endswith("catch_up")}
    old = Ledger.empty(4, CPU).with_state(known)
    assert old.totals() == {**first.totals(), "wire_catch_up_bytes": 0, "paper_catch_up_bytes": 0}
    assert old.state().keys() == Ledger.empty(4, CPU).state().keys()
    whole, second = after(first, range(3, 6)), after(old, range(3, 6))
    for name, total in second.totals().items():
        assert total == whole.totals()[name] - (first.totals()[name] if "catch_up" in name else 0)


def test_a_ledger_is_a_value():
    ledger = after(Ledger.empty(4, CPU), range(2))
    before = {name: tensor.clone() for name, tensor in ledger.state().items()}
    after(ledger, range(2, 4))
    assert all(torch.equal(ledger.state()[name], before[name]) for name in before)


def test_the_start_is_free():
    assert set(Ledger.empty(3, CPU).totals().values()) == {0}


def test_messages_that_stand_alone_are_all_that_anyone_gets():
    """However long a client was away; and between rounds the last of them again."""
    column, replica = Column.empty(4, CPU), {"z": torch.ones(1000)}
    for down, listeners in ((70, [0, 1]), (50, [0, 2]), (60, [1, 3])):
        up = torch.tensor([5, 5])
        sizes = Sizes.of(frame_nbytes, up, torch.tensor(down), replica, anyone_away=True, alone=True)
        due = column.due(sizes, torch.tensor(listeners))
        assert due.tolist() == [down, down]
        column = column.add(sizes, torch.tensor(listeners))
    assert (int(column.down), int(column.catch_up), int(column.up)) == (2 * 180, 0, 30)
    ledger, due = handed_out(Ledger(column, column), replica, torch.tensor([0, 3]))
    assert due.tolist() == [60, 0]
    assert int(ledger.wire.down) == 360 + 60
    again = Column.empty(4, CPU).with_tensors(column.tensors())
    zeros = {"z": torch.zeros(1000)}  # of which a snapshot would be shorter, but none is sent
    assert int(frame_nbytes(snapshot(zeros))) < 60
    for known in (replica, zeros):
        assert handed_out(Ledger(again, again), known, torch.tensor([0, 3]))[1].tolist() == [60, 0]
    assert int(column.copied().last) == 60
