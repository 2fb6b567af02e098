"""Rows in memory and on a disk, their codes, and values that remember what was overwritten."""

import contextlib
import random

import numpy as np
import pytest
import torch

from fedcef.core.errors import RunError
from fedcef.simulation.stores import filed
from fedcef.simulation.stores.coded import Coded
from fedcef.simulation.stores.filed import Filed, Journalled
from fedcef.simulation.stores.row_codes import ROW_CODES, Exact, NonZeros
from fedcef.simulation.stores.row_log import RowLog
from fedcef.simulation.stores.slots import Slots
from fedcef.simulation.stores.touched import Touched

N = 50
FIRST = {"a": torch.tensor([1.0, 0.0, -2.0]), "b": torch.tensor(7)}


def rows_of(kind, folder):
    if kind == "slots":
        return Slots(FIRST, N)
    if kind == "coded":
        return Coded(FIRST, N, NonZeros())
    if kind == "filed":
        return Filed(FIRST, N, RowLog(folder), NonZeros())
    return Journalled(Slots(FIRST, N), RowLog(folder))


def random_rows(source, count):
    values = torch.tensor([[source.choice([0.0, -0.0, 1.5, -3.0]) for _ in range(3)] for _ in range(count)])
    return {"a": values.view(count, 3), "b": torch.tensor([source.randrange(9) for _ in range(count)])}


def same(one, other):
    return all(np.array_equal(one[name].numpy().view(np.uint8), other[name].numpy().view(np.uint8)) for name in FIRST)


@pytest.mark.parametrize("kind", ["slots", "coded", "filed", "journalled"])
def test_every_value_stays_what_it_was(kind, tmp_path):
    """A walk through versions, each of which must read as a table that was copied whole."""
    source, everyone = random.Random(5), torch.arange(N)
    store = Touched(rows_of(kind, tmp_path))
    table = {name: vector.expand(N, *vector.shape).clone() for name, vector in FIRST.items()}
    versions = [(store, table)]
    for _ in range(30):
        store, table = source.choice(versions[-6:])
        clients = torch.tensor(sorted(source.sample(range(N), source.randrange(1, 9))))
        rows = random_rows(source, len(clients))
        if source.random() < 0.5:
            assert same(store.take(clients), {name: values[clients] for name, values in table.items()})
        after = {name: values.index_copy(0, clients, rows[name]) for name, values in table.items()}
        versions.append((store.put(clients, rows), after))
    for store, table in versions:
        assert same(store.take(everyone), table)
        assert len(store.touched()) <= N


@pytest.mark.parametrize("kind", ["filed", "journalled"])
def test_a_mark_brings_its_moment_back(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(filed, "_SLACK", 0)  # files are written anew all the time
    source, everyone = random.Random(3), torch.arange(N)
    store = Touched(rows_of(kind, tmp_path))
    for _ in range(40):
        clients = torch.tensor(sorted(source.sample(range(8), 4)))
        store = store.put(clients, random_rows(source, 4))
        mark, known = store.tensors(), store.take(everyone)
        store = store.put(clients, random_rows(source, 4))  # what no mark knows of is lost
        other = Touched(rows_of(kind, tmp_path)).with_tensors(mark)
        assert same(other.take(everyone), known)
        store = other
    assert int(mark["log"][0]) > 3  # so many files; two are left
    assert len(list(tmp_path.iterdir())) <= 2
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 40 * 2 * 4 * 20


@pytest.mark.parametrize("kind", ["filed", "journalled"])
def test_older_values_outlive_a_file_that_is_written_anew(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(filed, "_SLACK", 0)
    source, clients, everyone = random.Random(8), torch.tensor([1, 4, 5]), torch.arange(N)
    older = Touched(rows_of(kind, tmp_path)).put(clients, random_rows(source, 3))
    known = older.take(everyone)
    newer = older
    while int(newer.tensors()["log"][0]) == 0:
        newer = newer.put(clients, random_rows(source, 3))
    last = newer.take(everyone)
    assert same(older.take(everyone), known)
    assert same(newer.take(everyone), last)


def test_a_snapshot_writes_what_has_changed(tmp_path):
    first = {"a": torch.zeros(1000)}
    store = Touched(Journalled(Slots(first, N), RowLog(tmp_path)))
    store = store.put(torch.arange(N), {"a": torch.ones(N, 1000)})
    _, before = store.tensors()["log"].tolist()
    store = store.put(torch.tensor([3]), {"a": torch.ones(1, 1000)})
    _, after = store.tensors()["log"].tolist()
    assert before > 50 * 4000 > 4100 > after - before > 4000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["exact", "nonzeros"])
def test_codes_keep_every_bit(name, dtype):
    code, generator = ROW_CODES[name](), torch.Generator().manual_seed(1)
    dense = torch.randn(500, generator=generator, dtype=dtype)
    sparse = torch.where(torch.rand(500, generator=generator) < 0.05, dense, 0)
    signs = torch.where(torch.rand(500, generator=generator) < 0.2, dense.sign() * 0.25, 0)
    odd = torch.zeros(500, dtype=dtype)
    odd[7], odd[9], odd[499] = -0.0, float("nan"), float("inf")
    row = {"dense": dense, "sparse": sparse, "signs": signs, "odd": odd, "none": dense * 0}
    back = code.decode(code.encode(row), row)
    for key, vector in row.items():
        assert back[key].dtype == dtype
        assert back[key].numpy().tobytes() == vector.numpy().tobytes(), key


@pytest.mark.parametrize(("scales", "bits"), [(1, 3), (200, 10)])
def test_sums_of_signs_take_a_number_in_a_table(scales, bits):
    generator = torch.Generator().manual_seed(2)
    total = torch.zeros(100_000)
    scale = torch.linspace(1, 2, scales).repeat_interleave(4000 // scales)
    for n in range(2):
        places = torch.randperm(100_000, generator=generator)[:4000]
        total[places] += (1 + n) * 0.01 * scale * torch.randn(4000, generator=generator).sign()
    kept, row = int((total != 0).sum()), {"c": total}
    table = 4 * len(total[total != 0].unique())
    data = NonZeros().encode(row)
    assert 2 ** (bits - 1) < table / 4 <= 2**bits
    assert len(data) - table < kept * (5.25 + bits) / 8  # which places 8% of them are is 5.06 bits each
    assert NonZeros().decode(data, row)["c"].equal(total)
    assert len(Exact().encode(row)) == 400_000


def test_bfloat16_is_half_as_long_and_rounds():
    row = {"a": torch.tensor([1.0, 1.001, -3e-9]), "b": torch.tensor([5])}
    data = ROW_CODES["bfloat16"]().encode(row)
    assert len(data) == 6 + 8
    assert ROW_CODES["bfloat16"]().decode(data, row)["a"].tolist() == row["a"].bfloat16().float().tolist()


def test_a_damaged_row_is_refused(tmp_path):
    rows = Filed(FIRST, N, RowLog(tmp_path), Exact())
    rows.write(torch.tensor([4]), random_rows(random.Random(1), 1))
    rows.keep()
    path = tmp_path / "client_states.0.bin"
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"The state of client 4 .* cannot be read: The checksum"):
        rows.read(torch.tensor([4]))


def test_a_file_that_is_shorter_than_its_mark_is_refused(tmp_path):
    rows = Filed(FIRST, N, RowLog(tmp_path), Exact())
    rows.write(torch.tensor([4]), random_rows(random.Random(1), 1))
    mark = rows.keep()
    (tmp_path / "client_states.0.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="missing or shorter"):
        Filed(FIRST, N, RowLog(tmp_path), Exact()).go_back(mark)


def test_the_limit_is_told_in_a_sentence(tmp_path):
    rows = Filed(FIRST, N, RowLog(tmp_path), Exact(), limit=100)
    rows.write(torch.tensor([4]), random_rows(random.Random(1), 1))
    with pytest.raises(RunError, match=r"clients and this round's take 135 B, more than store\.limit = 100 B;"):
        rows.write(torch.tensor([5, 6]), random_rows(random.Random(1), 2))
    assert rows.touched().tolist() == [4]  # nothing was done


@pytest.mark.parametrize("moment", range(1, 9))
def test_an_interrupt_while_a_file_is_written_anew_loses_nothing(tmp_path, monkeypatch, moment):
    monkeypatch.setattr(filed, "_SLACK", 0)
    monkeypatch.setattr(filed, "_AT_ONCE", 2)
    source, everyone = random.Random(4), torch.arange(N)
    rows = Filed(FIRST, N, RowLog(tmp_path), Exact())
    rows.write(torch.arange(12), random_rows(source, 12))
    rows.write(torch.arange(12), random_rows(source, 12))
    before, add, calls = rows.read(everyone), RowLog.add, []

    def interrupted(log, records):
        calls.append(log)
        if len(calls) == moment + 1:  # the first call is the write's own
            raise KeyboardInterrupt
        return add(log, records)

    monkeypatch.setattr(RowLog, "add", interrupted)
    more = random_rows(source, 1)
    with contextlib.suppress(KeyboardInterrupt):
        rows.write(torch.tensor([3]), more)
    monkeypatch.setattr(RowLog, "add", add)
    after = {name: table.index_copy(0, torch.tensor([3]), more[name]) for name, table in before.items()}
    assert same(rows.read(everyone), after)
    other = Filed(FIRST, N, RowLog(tmp_path), Exact())
    other.go_back(rows.keep())
    assert same(other.read(everyone), after)


def test_a_file_stays_while_a_snapshot_may_point_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(filed, "_SLACK", 0)
    source, everyone = random.Random(6), torch.arange(N)
    rows = Filed(FIRST, N, RowLog(tmp_path), Exact())
    rows.write(torch.arange(5), random_rows(source, 5))
    mark, known = rows.keep(), rows.read(everyone)
    for _ in range(20):
        rows.write(torch.arange(5), random_rows(source, 5))
    assert len(list(tmp_path.iterdir())) <= 3
    other = Filed(FIRST, N, RowLog(tmp_path), Exact())
    other.go_back(mark)
    assert same(other.read(everyone), known)


def test_methods_without_states_keep_nothing(tmp_path):
    for rows in (Slots({}, N), Filed({}, N, RowLog(tmp_path), Exact())):
        store = Touched(rows).put(torch.tensor([1, 2]), {})
        assert store.take(torch.tensor([0, 1])) == {}
    assert not list(tmp_path.iterdir())
