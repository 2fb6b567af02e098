"""Running statistics that are averaged: plain PyTorch with one client, plain means with many, and any method."""

import re
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedcef
from fedcef import FedAvg, FedCEF, Problem, TopK, Training, run
from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.statistics import STATISTICS, carrying
from fedcef.compressors.private import Private
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.export.trained import load_trained
from fedcef.oracles.oracle import make_oracle
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Dense, frame_nbytes

ORACLES = ["loop", "stacked"]


def table(count, seed, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, generator=g, dtype=dtype) + seed / 3, torch.randint(0, 3, (count,), generator=g)


def net(momentum=0.1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=momentum), nn.Tanh(), nn.Linear(6, 3))
    model.train()(table(40, 9)[0])  # statistics that are not those of a new layer
    return model


def build(clients=10, model=None, buffers="mean", dtype=torch.float32, sizes=(9, 7, 8), **options):
    shards = [table(sizes[n % 3], n, dtype) for n in range(clients)]
    model = (net() if model is None else model).to(dtype)
    return Problem.build(model, cross_entropy, shards, test=table(11, 30, dtype), buffers=buffers, **options)


def trained(model, data, steps, lr=0.1):
    """A copy of the model after so many steps of plain gradient descent."""
    model = deepcopy(model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()
    return model


def state_of(simulation):
    return simulation.problem.state_dict(simulation.model(), statistics=simulation.statistics())


@torch.no_grad()
def train_loss(model):
    shards = [table((9, 7, 8)[n % 3], n) for n in range(10)]
    return sum(float(cross_entropy(model.eval()(inputs), targets)) for inputs, targets in shards) / 10


def close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=tolerance)


def played(problem, method, rounds, **options):
    simulation = Simulation(problem, method, rounds=rounds, **options)
    for _ in range(rounds):
        simulation.step()
    return simulation


# what they are


@pytest.mark.parametrize(("oracle", "momentum"), [("loop", 0.1), ("stacked", 0.1), ("auto", None)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_one_client_is_plain_training(oracle, momentum, dtype, tolerance):
    problem = build(1, net(momentum), dtype=dtype)
    simulation = played(problem, FedAvg(local_lr=0.1, local_steps=3), 4, batch_size=0, oracle=oracle)
    expected = trained(problem.model, table(9, 0, dtype), 12).state_dict()
    assert expected["1.num_batches_tracked"] == 13
    close(state_of(simulation), expected, tolerance)


@pytest.mark.parametrize("some", [0, 3])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_the_server_has_the_cohort_s_mean(some, weighting):
    """Two rounds by hand: every client trains a copy of the module, and copies are averaged entry by entry."""
    problem, method = build(dtype=torch.float64), FedAvg(local_lr=0.1, local_steps=3)
    simulation = Simulation(
        problem, method, batch_size=0, oracle="loop", clients_per_round=some, weighting=weighting, seed=4
    )
    model = deepcopy(problem.model)
    for number in range(2):
        cohort = simulation.engine.rounds.cohort(number).tolist()
        assert len(cohort) == (some or 10)
        copies = [trained(model, table((9, 7, 8)[n % 3], n, torch.float64), 3).state_dict() for n in cohort]
        sizes = torch.tensor([(9, 7, 8)[n % 3] if weighting == "samples" else 1 for n in cohort], dtype=torch.float64)
        means = {}
        for name, tensor in model.state_dict().items():
            mean = sum(share * copy[name] for share, copy in zip(sizes / sizes.sum(), copies, strict=True))
            means[name] = mean if tensor.is_floating_point() else mean.round().to(tensor.dtype)
        model.load_state_dict(means)
        simulation.step()
        close(state_of(simulation), model.state_dict(), 1e-12)


def test_the_model_is_evaluated_and_handed_out_with_them(tmp_path):
    problem = build()
    before = deepcopy(problem.model.state_dict())
    seen = []
    history = run(
        problem,
        FedCEF(local_lr=0.1, local_steps=3, compressor=TopK(ratio=0.3)),
        rounds=4,
        eval_every=2,
        batch_size=4,
        out=tmp_path / "run",
        watch=lambda record, model: seen.append((record, deepcopy(model.eval()))),
    )
    assert all(torch.equal(value, before[name]) for name, value in problem.model.state_dict().items())
    inputs, _ = table(11, 30)
    assert len(seen) == 3
    for record, model in seen:
        assert record["train_loss"] == pytest.approx(train_loss(model), abs=1e-6)
    final = history.model.eval()
    assert not torch.equal(final[1].running_mean, before["1.running_mean"])
    assert final[1].num_batches_tracked == 13
    assert torch.equal(final(inputs), seen[-1][1](inputs))
    assert torch.equal(load_trained(tmp_path / "run", net()).model.eval()(inputs), final(inputs))
    again = run(problem, FedCEF(local_lr=0.1, local_steps=3, compressor=TopK(ratio=0.3)), rounds=4, batch_size=4)
    assert all(torch.equal(again.parameters[name], history.parameters[name]) for name in before)


class Scaled(nn.Module):
    """Has buffers that it replaces rather than overwrites, one of them a whole number."""

    def __init__(self):
        super().__init__()
        self.register_buffer("largest", torch.ones(4))
        self.register_buffer("seen", torch.tensor(0))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        if self.training:
            assert self.seen.dtype == torch.int64
            self.largest = torch.maximum(self.largest, x.detach().abs().amax(0))
            self.seen = self.seen + len(x)
        return self.head(x / self.largest)


class Flagged(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("flag", torch.tensor(False))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        self.flag = self.flag ^ self.training
        return self.head(x)


def test_buffers_of_ones_own():
    problem = build(2, Scaled(), sizes=(8, 8, 8))
    for oracle in ORACLES:
        simulation = played(problem, FedAvg(local_lr=0.1, local_steps=2), 3, batch_size=0, oracle=oracle)
        state = state_of(simulation)
        each = [table(8, n)[0].abs().amax(0).clamp(min=1) for n in range(2)]
        first = torch.stack(each).mean(0)
        then = torch.stack([torch.maximum(first, one) for one in each]).mean(0)
        last = torch.stack([torch.maximum(then, one) for one in each]).mean(0)
        torch.testing.assert_close(state["largest"], last)
        assert state["seen"] == 48
    with pytest.raises(ProblemError, match=re.escape("buffers='mean' is for numbers; flag can only be kept")):
        build(2, Flagged())


def test_a_layer_in_two_places_has_one_mean():
    layer = nn.BatchNorm1d(4)
    problem = build(3, nn.Sequential(layer, nn.Linear(4, 4), layer, nn.Linear(4, 3)))
    simulation = played(problem, FedAvg(local_lr=0.1, local_steps=2), 2, batch_size=4)
    assert len(simulation.statistics()) == 9
    state = state_of(simulation)
    assert state.keys() == problem.model.state_dict().keys()
    assert torch.equal(state["0.running_var"], state["2.running_var"])
    assert state["0.num_batches_tracked"] == 8  # twice a pass


# any method, any way to compute


@pytest.mark.parametrize("name", ALGORITHMS)
def test_any_method_trains_as_with_statistics_of_each_batch(name):
    """The parameters are those of buffers = 'local', bit for bit, and the bytes are more by one dense part."""
    kind = ALGORITHMS[name]
    method = kind(local_lr=0.02, local_steps=3, **({"compressor": TopK(ratio=0.3)} if kind.compresses else {}))
    options = {"batch_size": 4, "oracle": "loop", "seed": 2}
    mean, local = played(build(4), method, 3, **options), played(build(4, buffers="local"), method, 3, **options)
    assert isinstance(mean.algorithm, kind)
    assert mean.replica.keys() - local.replica.keys() == {STATISTICS}
    assert all(torch.equal(vector, mean.replica[part]) for part, vector in local.replica.items())
    assert torch.equal(mean.model(), local.model())
    assert mean.clients.keys() == local.clients.keys()
    assert all(torch.equal(rows, mean.clients[part]) for part, rows in local.clients.items())
    part = int(frame_nbytes({STATISTICS: Dense(torch.zeros(13))}) - frame_nbytes({}))
    more, less = mean.ledger.totals(), local.ledger.totals()
    assert more["wire_up_bytes"] - less["wire_up_bytes"] == 4 * 3 * part
    assert more["paper_up_bytes"] - less["paper_up_bytes"] == 4 * 3 * 4 * 13
    assert more["wire_down_bytes"] > less["wire_down_bytes"]


@pytest.mark.parametrize(
    "options",
    [
        {"cohort_chunk": 2},
        {"store": {"name": "memory"}},
        {"network": {"preset": "lte"}},
    ],
    ids=str,
)
def test_the_same_bits_in_other_ways(options):
    method = FedCEF(local_lr=0.05, local_steps=3, compressor=TopK(ratio=0.3))
    shared = {"batch_size": 4, "oracle": "loop", "clients_per_round": 5}
    one, other = played(build(), method, 4, **shared), played(build(), method, 4, **shared, **options)
    assert all(torch.equal(vector, other.replica[name]) for name, vector in one.replica.items())
    assert one.ledger.totals() == other.ledger.totals()


def test_both_oracles_agree():
    method = FedAvg(local_lr=0.05, local_steps=3)
    one, other = (played(build(dtype=torch.float64), method, 3, batch_size=4, oracle=oracle) for oracle in ORACLES)
    close(state_of(one), state_of(other), 1e-12)
    with pytest.raises(ConfigError, match="use oracle = 'stacked'"):
        played(build(), method, 1, batch_size=4, oracle="layered")


def test_a_budget_counts_them():
    method = FedCEF(local_lr=0.05, local_steps=3, compressor=TopK(ratio=0.3))
    simulation = played(build(4), method, 12, batch_size=4, budget=18_000)
    sent = simulation.ledger.sent()
    assert 4 * 12 * 2 * 52 < sent <= 18_000  # 52 bytes of them each way
    assert len(set(simulation.state.spending.measured)) > 1


def test_stale_ones_count_less_and_are_not_shrunk():
    network = {"mode": "async", "preset": "lte", "step_s": 0.01, "concurrency": 6, "buffer": 2, "discount": 2.0}
    simulation = played(build(), FedAvg(local_lr=1e-6, local_steps=2), 8, batch_size=4, network=network)
    assert simulation.statistics()[6:12].min() > 0.5 * net()[1].running_var.min()
    assert state_of(simulation)["1.num_batches_tracked"] > 3


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_pass_leaves_the_host_alone_and_says_so_if_not(momentum):
    """On the meta device nothing can be read back, as when a CUDA graph is recorded."""
    problem = build(1, net(momentum))
    captures = make_oracle(problem, Training(batch_size=4)).captures
    there = problem.to("meta")
    x, inputs = there.z0.requires_grad_(), torch.empty(4, 4, device="meta")

    def gradient():
        outputs, moved = there.training_pass(there.model.train(), x, inputs, there.running_statistics)
        return torch.autograd.grad(outputs.sum(), x)[0], moved

    assert captures == (momentum is not None)
    if captures:
        g, moved = gradient()
        assert (g.shape, moved.shape) == (x.shape, (13,))
    else:
        with pytest.raises(RuntimeError, match="meta"):
            gradient()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("some", [0, 3])
def test_a_replayed_round_is_the_round(oracle, some):
    """Statistics are part of the recorded state, and the module's own buffers stay as they are."""
    problem = build().to("cuda")
    before = deepcopy(problem.model.state_dict())
    method = FedCEF(local_lr=0.05, local_steps=3, compressor=TopK(ratio=0.3))
    shared = {"batch_size": 4, "oracle": oracle, "clients_per_round": some}
    eager, captured = (played(problem, method, 6, **shared, cuda_graphs=graphs) for graphs in (False, True))
    assert captured.is_captured
    assert all(torch.equal(vector, captured.replica[name]) for name, vector in eager.replica.items())
    assert eager.ledger.totals() == captured.ledger.totals()
    close(problem.model.state_dict(), before, 0)


# later


def test_a_snapshot_holds_them():
    method = FedCEF(local_lr=0.05, local_steps=3, compressor=TopK(ratio=0.3))
    options = {"batch_size": 4, "clients_per_round": 4, "averaging": 0.8}
    through, resumed = Simulation(build(), method, **options), Simulation(build(), method, **options)
    for _ in range(3):
        through.step()
    kept = {part: {n: t.clone() for n, t in state.items()} for part, state in through.parts().items()}
    assert STATISTICS in kept["replica"].keys() & kept["average"].keys()
    resumed.restore(3, kept)
    for _ in range(3):
        through.step(), resumed.step()
    assert all(torch.equal(t, through.state.tensors()[name]) for name, t in resumed.state.tensors().items())
    without = {part: {n: t for n, t in state.items() if n != STATISTICS} for part, state in kept.items()}
    with pytest.raises(ValueError, match="replica/statistics differs"):
        resumed.restore(3, without)


def test_a_mean_of_models_has_the_mean_of_their_statistics():
    plain, averaged = (
        Simulation(build(), FedAvg(local_lr=0.05, local_steps=2), batch_size=4, averaging=worth) for worth in (0.0, 0.9)
    )
    expected = plain.problem.running_statistics
    for number in range(4):
        plain.step(), averaged.step()
        worth = (1 + number) / (10 + number)
        expected = worth * expected + (1 - worth) * plain.statistics()
    torch.testing.assert_close(averaged.statistics(), expected)
    measured = Evaluator(build(), 0.1)(averaged.model(), averaged.statistics())
    model = net()
    model.load_state_dict(state_of(averaged))
    assert measured["train_loss"] == pytest.approx(train_loss(model), abs=1e-6)


# what is refused


def test_what_does_not_go_together():
    problem = build()
    with pytest.raises(ConfigError, match=re.escape("With buffers = 'mean' batch normalisation takes the statistics")):
        run(problem, FedAvg(), rounds=1, batch_size=1)
    private = FedCEF(compressor=Private(inner=TopK(ratio=0.3), clip=1.0, noise=1.0))
    with pytest.raises(ConfigError, match=re.escape("[privacy] covers what goes through a compressor, and running")):
        Simulation(problem, private)
    assert carrying(private, torch.empty(0)) is private


def test_it_is_the_method_with_one_more_vector():
    method = carrying(FedCEF(local_lr=0.3, compressor=TopK(ratio=0.3)), torch.zeros(5))
    assert isinstance(method, FedCEF)
    assert (type(method).__name__, method.local_lr) == ("FedCEF", 0.3)
    assert replace(method, local_steps=7).statistics is method.statistics
    assert fedcef.FedCEF in type(method).__mro__
