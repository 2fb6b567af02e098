"""Count sketches, and FetchSGD beside the methods that it is with an exact sketch."""

import pytest
import torch

from fedcef.algorithms import EF14, FedAvg, FedAvgM, FetchSGD
from fedcef.algorithms.count_sketch import CountSketch
from fedcef.compressors import TopK
from fedcef.regularizers import L1
from fedcef.wire import Nonzeros

from .setting import Quadratics, received, settle, simulate

PROBLEM = Quadratics.random()
EXACT = {"rows": 3, "width": 1.0, "kept": 1.0}


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# the sketch


@pytest.mark.parametrize("columns", [1, 7, 10, 25, 40])
def test_every_row_deals_every_entry_once_and_evenly(columns):
    table = CountSketch(4, columns, 25).of(torch.eye(25, dtype=torch.float64)).reshape(25, 4, columns)
    assert ((table == 0) | (table.abs() == 1)).all()
    assert (table.abs().sum(-1) == 1).all()
    met = table.abs().sum(0)
    assert (met <= -(-25 // columns)).all()
    assert (met >= 25 // columns).all()


def test_rows_differ_and_signs_are_mixed():
    table = CountSketch(3, 10, 1000).of(torch.eye(1000, dtype=torch.float64)).reshape(1000, 3, 10)
    places, signs = table.abs().argmax(-1), table.sum(-1)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert 50 < (places[:, a] == places[:, b]).sum() < 150  # a tenth of them, if the rows are independent
        assert 400 < (signs[:, a] == signs[:, b]).sum() < 600
    assert (signs.sum(0).abs() < 150).all()


@pytest.mark.parametrize("shape", [(25,), (3, 25), (2, 3, 25)])
def test_the_sketch_of_a_stack_is_the_stack_of_sketches(shape):
    sketch, x = CountSketch(3, 4, 25), vectors(*shape).to(torch.float32)
    whole = sketch.of(x)
    assert whole.shape == (*shape[:-1], 12)
    each = torch.stack([sketch.of(row) for row in x.reshape(-1, 25)]).reshape(whole.shape)
    assert torch.equal(whole, each)
    again = torch.stack([sketch.estimate(row) for row in whole.reshape(-1, 12)]).reshape(shape)
    assert torch.equal(sketch.estimate(whole), again)


def test_it_is_linear():
    sketch, (x, y) = CountSketch(5, 6, 40), vectors(2, 40)
    torch.testing.assert_close(sketch.of(2 * x - y), 2 * sketch.of(x) - sketch.of(y), rtol=0, atol=1e-14)


@pytest.mark.parametrize("columns", [40, 57])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_with_as_many_columns_as_entries_it_loses_nothing(rows, columns):
    sketch, x = CountSketch(rows, columns, 40), vectors(3, 40)
    assert torch.equal(sketch.estimate(sketch.of(x)), x)


def test_large_entries_are_found():
    x = 0.01 * vectors(2000)
    large = torch.tensor([3, 500, 501, 1999])
    x[large] = torch.tensor([1.0, -2.0, 1.5, -1.0]).double()
    guess = CountSketch(7, 200, 2000).estimate(CountSketch(7, 200, 2000).of(x))
    assert guess.abs().topk(4).indices.sort().values.tolist() == large.tolist()
    torch.testing.assert_close(guess[large], x[large], rtol=0, atol=0.1)


# the method


def points_agree(one, other, problem=PROBLEM, rounds=10, size=None):
    mine, theirs = (simulate(method, problem, rounds, size).points for method in (one, other))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("removal", ["zero", "subtract"])
@pytest.mark.parametrize("size", [None, 2])
def test_with_nothing_lost_it_is_sgd(size, removal):
    options = {"local_lr": 0.1, "local_steps": 1, "server_lr": 0.8, "regularizer": L1(0.05)}
    points_agree(FetchSGD(**options, **EXACT, momentum=0.0, removal=removal), FedAvg(**options), size=size)


@pytest.mark.parametrize("size", [None, 2])
def test_with_nothing_lost_its_momentum_is_fedavgms(size):
    options = {"local_lr": 0.1, "local_steps": 1, "regularizer": L1(0.05), "momentum": 0.6}
    points_agree(FetchSGD(**options, **EXACT, removal="subtract"), FedAvgM(**options), size=size)


@pytest.mark.parametrize("removal", ["zero", "subtract"])
def test_with_an_exact_sketch_and_one_client_it_is_error_feedback(removal):
    alone = Quadratics(PROBLEM.a[:1], PROBLEM.b[:1])
    options = {"local_lr": 0.05, "local_steps": 3}
    fetch = FetchSGD(**options, rows=3, width=1.0, kept=0.2, momentum=0.0, removal=removal)
    points_agree(fetch, EF14(**options, compressor=TopK(ratio=0.2)), alone, rounds=20)


@pytest.mark.parametrize("removal", ["zero", "subtract"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_with_an_exact_sketch_a_smooth_problem_is_solved(momentum, removal):
    """However few entries move: the memory is of the mean gradient, so it empties, where EF14's memories do not."""
    options = {"local_lr": 0.02, "local_steps": 1}
    method = FetchSGD(**options, rows=1, width=1.0, kept=0.1, momentum=momentum, removal=removal)
    z, distance = settle(method, PROBLEM, 6000, 1e-10)
    assert distance <= 1e-10
    torch.testing.assert_close(z, torch.linalg.solve(PROBLEM.a.mean(0), PROBLEM.b.mean(0)), rtol=0, atol=1e-8)


def test_what_is_subtracted_is_what_was_sent():
    """u and e stay the sketches of a momentum and of a memory: e + S(all steps) = S(β Σ u)."""
    method = FetchSGD(local_lr=0.02, local_steps=2, rows=3, width=0.3, kept=0.1, momentum=0.5, removal="subtract")
    sketch, z0 = method.sketch(20), PROBLEM.z0
    outcome = simulate(method, PROBLEM, 7)
    u, total = torch.zeros(18).double(), torch.zeros(18).double()
    for z in [z0, *outcome.points[:-1]]:
        u = 0.5 * u + sketch.of(PROBLEM.gradient(z))
        total = total + 0.02 * 2 * u
    torch.testing.assert_close(outcome.server["u"], u, rtol=0, atol=1e-13)
    torch.testing.assert_close(outcome.server["e"] + sketch.of(z0 - outcome.points[-1]), total, rtol=0, atol=1e-13)


def test_messages_are_short():
    method = FetchSGD(rows=5, width=0.02, kept=0.01)
    z0 = vectors(1000)
    up, state = method.local({"z": z0}, {}, lambda x, k: vectors(4, 1000, seed=k), None)
    assert state == {}
    assert up["sketch"].dense().shape == (4, 100)
    down, server = method.server_step(method.server_init(z0), {"z": z0}, received(up))
    assert isinstance(down["step"], Nonzeros)
    assert int((down["step"].dense() != 0).sum()) == 10
    assert {name: part.shape for name, part in server.items()} == {"u": (100,), "e": (100,)}
