"""A rule in the place of the mean: what it is applied to, round by round, and where it is refused."""

import math

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, EF21, SCAFFOLD, FedAvg, FedCEF, FedDyn, FedPAQ, Qsparse
from fedcef.algorithms.aggregating import own_state
from fedcef.compressors import Auto, Identity, TopK
from fedcef.core.aggregation import Median, NormClipping, TrimmedMean
from fedcef.core.errors import ConfigError
from fedcef.problems.lasso import Linear, half_mean_square, lasso
from fedcef.problems.problem import Problem
from fedcef.regularizers import L1
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.05), num_clients=5, samples=30, dim=20, support=5, dtype=torch.float64)
SMALL = {"local_lr": 0.005, "local_steps": 3, "regularizer": PROBLEM.regularizer}
RULES = ("trimmed_mean", "median", "norm_clipping", "geometric_median")
TAKE = [name for name, kind in ALGORITHMS.items() if kind.takes_rules is True] + ["fedcef"]


def method(name, **options):
    kind = ALGORITHMS[name]
    memory = {"compressor": TopK(ratio=0.2)} if kind.compresses and kind.adds_up != () else {}
    return kind(**{**SMALL, "compressor": Identity(), **memory, **options})


def simulated(algorithm, rounds=3, **options):
    simulation = Simulation(PROBLEM, algorithm, **{"batch_size": 5, **options})
    for _ in range(rounds):
        simulation.step()
    return simulation


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", TAKE)
@pytest.mark.parametrize("rule", [TrimmedMean(trim=0.0), NormClipping(factor=math.inf)])
def test_a_rule_that_is_the_mean_changes_no_bit(name, rule):
    plain, ruled = simulated(method(name)), simulated(method(name), aggregation=rule)
    assert equal(ruled.replica, plain.replica)
    assert equal(ruled.server, plain.server)
    assert ruled.ledger.totals() == plain.ledger.totals()


@pytest.mark.parametrize("name", TAKE)
def test_every_method_that_takes_rules_has_rounds_with_each(name):
    plain = simulated(method(name))
    for rule in RULES:
        ruled = simulated(method(name), aggregation=rule)
        assert not torch.equal(ruled.model(), plain.model())
        assert own_state(ruled.server).keys() == plain.server.keys()
        assert bool(ruled.state.finite)


def test_fedavg_steps_by_the_median_of_changes():
    """By hand: the median of each client's change, entry by entry, then the proximal step."""
    algorithm = method("fedavg")
    simulation = Simulation(PROBLEM, algorithm, batch_size=5, aggregation="median")
    for t in range(4):
        z = simulation.model()
        up, _ = simulation.engine.work(simulation.state, simulation.engine.rounds.at(t))
        changes = up["change"].dense()
        simulation.step()
        expected = algorithm.regularizer.prox(z + changes.sort(dim=0).values[2], algorithm.step)
        assert torch.allclose(simulation.model(), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("downlink", ["increment", "dense", "lossy", "snapshot"])
@pytest.mark.parametrize("cohort", [5, 3])
@pytest.mark.parametrize(
    ("rule", "by_hand"),
    [
        ("median", lambda rows: rows.sort(dim=0).values[2]),
        ({"name": "trimmed_mean", "trim": 0.2}, lambda rows: rows.sort(dim=0).values[1:4].mean(0)),
        (
            {"name": "norm_clipping", "memory": 0.0, "factor": 0.8},
            lambda rows: (
                rows * (0.8 * rows.norm(dim=1).sort().values[2] / rows.norm(dim=1)).clamp(max=1)[:, None]
            ).mean(0),
        ),
    ],
    ids=["median", "trimmed mean", "clipping"],
)
def test_the_control_of_fedcef_is_the_rule_of_all_controls(downlink, cohort, rule, by_hand):
    """c = R(c_1, …, c_N) in every round, with those of absent clients as they last were; and z follows that c."""
    algorithm = method("fedcef", downlink=downlink, participation="averaged")
    simulation = Simulation(PROBLEM, algorithm, batch_size=5, aggregation=rule, clients_per_round=cohort)
    for t in range(8):
        z = simulation.model()
        simulation.step()
        c_i = simulation.clients["c_i"]
        assert torch.equal(simulation.server["rule.sent.delta"], c_i)
        if t < 2 and cohort < 5:
            continue  # some norms are 0 still
        c = simulation.server["c"] if downlink != "increment" else simulation.replica["c"]
        assert torch.allclose(c, by_hand(c_i), rtol=0, atol=1e-13)
        used = simulation.replica["c"] if downlink == "lossy" else c
        expected = algorithm.regularizer.prox(z - algorithm.step * used, algorithm.step)
        assert torch.allclose(simulation.model(), expected, rtol=0, atol=1e-13)


def test_a_rule_on_differences_alone_would_stand_still():
    """What the sums are for: the median of one round's messages is zero nearly everywhere, that of the sums is not."""
    algorithm = method("fedcef", compressor=TopK(ratio=0.05))
    simulation = Simulation(PROBLEM, algorithm, batch_size=5, aggregation="median")
    for t in range(40):
        up, _ = simulation.engine.work(simulation.state, simulation.engine.rounds.at(t))
        assert int((up["delta"].dense().sort(dim=0).values[2] != 0).sum()) <= 1
        simulation.step()
    assert int((simulation.replica["c"] != 0).sum()) >= 8


def test_ef21_and_scaffold_by_hand():
    ef21 = Simulation(PROBLEM, method("ef21"), batch_size=5, aggregation="median", clients_per_round=4)
    scaffold = Simulation(PROBLEM, method("scaffold"), batch_size=5, aggregation="median")
    for _ in range(8):
        ef21.step()
        scaffold.step()
        assert torch.allclose(ef21.server["g"], ef21.clients["g_i"].sort(dim=0).values[2], rtol=0, atol=1e-13)
        assert torch.allclose(scaffold.replica["c"], scaffold.clients["c_i"].sort(dim=0).values[2], rtol=0, atol=1e-13)


def test_equal_clients_have_the_mean_for_a_median():
    one = lasso(L1(0.05), num_clients=1, samples=30, dim=20, support=5, dtype=torch.float64)
    samples = one.client_samples(0)
    twins = type(one).build(one.model, one.loss, [(samples.inputs, samples.targets)] * 2, regularizer=one.regularizer)
    for name in ("fedavg", "fedcef"):
        plain, ruled = (Simulation(twins, method(name), batch_size=0, aggregation=r) for r in ("mean", "median"))
        for _ in range(5):
            plain.step()
            ruled.step()
        assert torch.allclose(ruled.model(), plain.model(), rtol=0, atol=0 if name == "fedavg" else 1e-15)


def test_down_messages_are_the_increments_entries_and_never_a_relay():
    coded = method("fedcef", compressor=TopK(ratio=0.2, values="sign"))
    for rule, sizes in (("mean", "relay"), ("median", "entries")):
        simulation = Simulation(PROBLEM, coded, batch_size=5, aggregation=rule)
        down = simulation.step()["increment"]
        assert (type(down).__name__ == "Nonzeros") == (sizes == "entries")


@pytest.mark.parametrize("name", ["fedavg", "fedcef", "scaffold"])
@pytest.mark.parametrize("rule", RULES)
def test_a_restored_run_goes_on_bit_for_bit(name, rule):
    whole = simulated(method(name), rounds=8, aggregation=rule, averaging=0.5)
    half = simulated(method(name), rounds=4, aggregation=rule, averaging=0.5)
    again = Simulation(PROBLEM, method(name), batch_size=5, aggregation=rule, averaging=0.5)
    again.restore(4, half.parts())
    for _ in range(4):
        again.step()
    assert equal(again.state.tensors(), whole.state.tensors())


@pytest.mark.parametrize("name", ["fedavg", "fedcef"])
def test_chunks_give_the_same_bits(name):
    whole, parts = (simulated(method(name), aggregation="median", cohort_chunk=chunk) for chunk in (0, 2))
    assert equal(parts.replica, whole.replica)
    assert equal(parts.server, whole.server)


def test_an_overflow_is_one_more_lie():
    """A sum that overflows stays a large number, so that nobody can end the run by it."""
    simulation = Simulation(
        PROBLEM,
        method("fedcef"),
        batch_size=5,
        aggregation="median",
        attack={
            "name": "scaling",
            "strength": 1e308,
            "clients": [1],
        },
    )
    for _ in range(6):
        simulation.step()
    assert all(bool(tensor.isfinite().all()) for tensor in (*simulation.replica.values(), *simulation.server.values()))


@pytest.mark.parametrize(
    ("algorithm", "options", "says"),
    [
        (FedDyn(**SMALL), {}, "the server of FedDyn needs a mean, and not aggregation 'median'; take a method whose"),
        (FedCEF(**SMALL), {"clients_per_round": 3}, "algorithm.participation = 'averaged' for fedcef with some"),
        (FedPAQ(**SMALL, compressor=TopK(ratio=0.1)), {}, "take fedcef or ef21, whose server knows each client's"),
        (Qsparse(**SMALL, compressor=TopK(ratio=0.1)), {}, "compressor.name = 'identity', or aggregation = 'mean'"),
        (
            FedCEF(**SMALL, control="change", compressor=TopK(ratio=0.1)),
            {},
            "Clients of FedCEF send compressed changes",
        ),
        (FedCEF(**SMALL, compressor=Auto()), {"budget": "1MB"}, "compressor auto plans for a mean"),
        (FedAvg(**SMALL), {"weighting": "samples"}, "counts all clients alike, since how many samples"),
        (FedAvg(**SMALL), {"network": {"mode": "async"}}, "takes their mean, not aggregation 'median'"),
    ],
)
def test_what_cannot_be_right_is_refused(algorithm, options, says):
    with pytest.raises(ConfigError, match=says):
        Simulation(PROBLEM, algorithm, aggregation=Median(), **options)


def test_a_population_has_no_table_of_sums(monkeypatch):
    monkeypatch.setattr("fedcef.core.round.POPULATION", 4)
    for algorithm in (EF21(**SMALL), SCAFFOLD(**SMALL)):
        with pytest.raises(ConfigError, match="looks at a vector of each of its 5 clients in every round"):
            Simulation(PROBLEM, algorithm, aggregation="median")
    Simulation(PROBLEM, FedAvg(**SMALL), aggregation="median")


def test_where_clients_differ_a_median_has_another_limit():
    """What docs/robustness.md says of the fixed point: exact with the mean, and with a rule where clients are alike."""
    g = torch.Generator().manual_seed(0)
    inputs = torch.randn(6, 40, 8, generator=g, dtype=torch.float64)
    targets = inputs[..., 0] + torch.randn(6, 40, generator=g, dtype=torch.float64)
    model = Linear(torch.ones(8, dtype=torch.float64))

    def limit(clients, rule):
        problem = Problem.build(model, half_mean_square, clients, regularizer=L1(0.05))
        algorithm = FedCEF(local_lr=0.03, local_steps=3, compressor=TopK(ratio=0.2), regularizer=problem.regularizer)
        simulation = Simulation(problem, algorithm, batch_size=0, aggregation=rule)
        for _ in range(250):
            simulation.step()
        return Evaluator(problem, algorithm.step)(simulation.model())["stationarity"]

    different = list(zip(inputs, targets, strict=True))
    assert limit(different, "mean") <= 1e-16
    assert limit(different, "median") >= 1e-4
    assert limit(different[:1] * 6, "median") <= 1e-16
