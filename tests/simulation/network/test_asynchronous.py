"""A server that does not wait: rounds as its limit, the order of events by hand, and staleness."""

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedAdam, FedAvgM, FedBuff, FedPAQ, FedProx, Qsparse
from fedcef.compressors import QSGD, TopK
from fedcef.core.errors import ConfigError
from fedcef.problems.lasso import lasso
from fedcef.regularizers import Zero
from fedcef.wire import frame_nbytes

from .setting import COMMON, fedavg, fedcef, played, same, simulation, trace

EQUAL = {"mode": "async", "buffer": 6, "spread": 0, "step_spread": 0}
THREE = lasso(Zero(), num_clients=3, samples=30, dim=8, support=3, dtype=torch.float64)


@pytest.mark.parametrize(
    "algorithm",
    [
        fedavg(),
        fedavg(composite="subgradient"),
        FedProx(**COMMON),
        FedAvgM(**COMMON),
        FedAdam(**COMMON),
        FedPAQ(**COMMON, compressor=TopK(ratio=0.2)),
        FedPAQ(**COMMON, compressor=QSGD(levels=3)),
        Qsparse(**COMMON, compressor=TopK(ratio=0.2)),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_equal_clients_and_room_for_all_are_rounds(algorithm, weighting):
    plain, _ = played(algorithm, None, weighting=weighting)
    free, clocks = played(algorithm, EQUAL, weighting=weighting)
    assert same(plain, free)  # bytes included
    assert [(clock["arrivals"], clock["staleness"]) for clock in clocks] == [(6, 0.0)] * 5


def test_the_clock_of_equal_clients_is_that_of_rounds():
    _, rounds = played(fedavg(), {"spread": 0, "step_spread": 0})
    _, free = played(fedavg(), EQUAL)
    assert [clock["sim_s"] for clock in free] == [clock["sim_s"] for clock in rounds]


def test_events_come_in_the_order_that_a_hand_computes(tmp_path):
    """Three clients need 1, 2 and 5 s; all are at work, and two replies make a step.

    t = 1   client 0 (model 0) is in, and goes on with model 0
    t = 2   client 0 (model 0, again) and client 1 (model 0) are in: the step is of the first two replies, both of
            client 0; client 1's waits; both go on with model 1
    t = 3   client 0 (model 1) is in: step of client 1 (model 0, one old) and client 0; it goes on with model 2
    t = 4   client 0 (model 2) and client 1 (model 1, one old) are in: a step, and both go on with model 3
    t = 5   client 0 (model 3) and client 2 (model 0, three old) are in: a step
    """
    network = {"mode": "async", "trace": trace(tmp_path, 1.0, 2.0, 5.0), "buffer": 2, "discount": 0.5}
    algorithm = fedavg(local_steps=1, local_lr=0.1, regularizer=THREE.regularizer)
    run, clocks = played(algorithm, network, problem=THREE, rounds=4)
    assert [clock["sim_s"] for clock in clocks] == [2.0, 3.0, 4.0, 5.0]
    assert [clock["staleness"] for clock in clocks] == [0.0, 0.5, 0.5, 1.5]

    engine, models = run.engine, [THREE.z0]

    def change(client, model, again=0):
        round_ = engine.rounds.at(model, torch.tensor([client])).again(torch.tensor([again]))
        up, _ = engine.local({"z": models[model]}, {}, round_)
        return up["change"].dense()[0]

    def step(*changes):
        models.append(models[-1] + sum(weight * each for weight, each in changes) / 2)

    step((1, change(0, 0)), (1, change(0, 0, again=1)))
    step((2**-0.5, change(1, 0)), (1, change(0, 1)))
    step((1, change(0, 2)), (2**-0.5, change(1, 1)))
    step((1, change(0, 3)), (4**-0.5, change(2, 0)))
    assert torch.allclose(run.model(), models[-1], rtol=0, atol=1e-12)
    assert not torch.equal(change(0, 0), change(0, 0, again=1))  # other minibatches


def test_bytes_are_those_of_hand_outs_and_replies(tmp_path):
    """As above, at t = 3: four replies were used; hand-outs were three before the start, then one, two and one."""
    network = {"mode": "async", "trace": trace(tmp_path, 1.0, 2.0, 5.0), "buffer": 2}
    run, _ = played(fedavg(local_steps=1), network, problem=THREE, rounds=2)
    frame = int(frame_nbytes(run.engine.work(run.state, run.engine.rounds.at(0))[0])[0])
    down = int(run.ledger.wire.log) // 2
    totals = run.ledger.totals()
    assert totals["wire_up_bytes"] == 4 * frame
    assert totals["wire_down_bytes"] == 3 * down  # model 0 was client 0's already
    assert totals["wire_catch_up_bytes"] == 0


def test_versions_are_kept_while_somebody_has_yet_to_work_on_them():
    network = {"mode": "async", "buffer": 1, "step_spread": 1.0}
    run = simulation(fedavg(), network)
    most = 0
    for _ in range(40):
        run.step()
        clock = run.state.clock
        open_ = {job.version for job in clock.under_way if job.message is None}
        assert clock.versions.keys() == open_ - {run.round}
        assert len(clock.under_way) == 6
        most = max(most, len(clock.versions))
    assert 1 < most <= 6


def test_fewer_clients_at_work_are_less_stale():
    def mean_staleness(**options):
        _, clocks = played(fedavg(), {"mode": "async", "buffer": 1, **options}, rounds=30)
        return sum(clock["staleness"] for clock in clocks) / 30

    assert mean_staleness(concurrency=1) == 0
    assert 0.5 < mean_staleness(concurrency=2) < 1.5
    assert mean_staleness() > 3


def test_same_seed_same_events_and_other_seed_other_events():
    network = {"mode": "async", "buffer": 2, "concurrency": 3}
    (one, first), (two, second) = (played(fedavg(), network, rounds=10) for _ in range(2))
    assert first == second
    assert same(one, two)
    assert played(fedavg(), network, rounds=10, seed=1)[1] != first


@pytest.mark.parametrize(
    "algorithm",
    [fedavg(), Qsparse(**COMMON, compressor=TopK(ratio=0.2)), FedPAQ(**COMMON, compressor=QSGD(levels=3))],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_replies_under_way_survive_a_snapshot(algorithm):
    network = {"mode": "async", "buffer": 2, "deadline": 0.3, "step_spread": 1.0}
    whole, clocks = played(algorithm, network, rounds=14)
    half, _ = played(algorithm, network, rounds=7)
    assert any(job.message is not None for job in half.state.clock.under_way)
    again = simulation(algorithm, network)
    again.restore(7, {part: {n: t.clone() for n, t in tensors.items()} for part, tensors in half.parts().items()})
    assert again.clock() == clocks[6]
    for _ in range(7):
        again.step()
    assert again.clock() == clocks[-1]
    assert same(whole, again)


def test_clients_that_never_answer_are_given_up(tmp_path):
    """Client 2 is away: after the deadline its place is free, and goes to it once more, as nobody else is idle."""
    windows = {0: (0, 99), 1: (0, 99), 2: (98, 99)}
    network = {
        "mode": "async",
        "trace": trace(tmp_path, 1.0, 2.0, 1.0, windows=windows),
        "unavailable": "silent",
        "deadline": 1.5,
        "buffer": 2,
    }
    run, clocks = played(fedavg(local_steps=1), network, problem=THREE, rounds=3)
    # client 1 needs longer than the deadline: only client 0 is ever heard of, once a second
    assert [clock["sim_s"] for clock in clocks] == [2.0, 4.0, 6.0]
    frame = int(frame_nbytes(run.engine.work(run.state, run.engine.rounds.at(0))[0])[0])
    assert run.ledger.totals()["wire_up_bytes"] == 6 * frame  # client 1 had not begun to send


def test_only_methods_that_say_so_are_asynchronous():
    allowed = {name for name, kind in ALGORITHMS.items() if kind.asynchronous}
    assert allowed == {
        "fedavg", "fedprox", "fedpaq", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "qsparse", "fed_ef",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "network", "options", "sentence"),
    [
        (fedcef(), {}, {}, "FedCEF has no asynchronous form"),
        (FedBuff(**COMMON), {}, {}, "FedBuff has no asynchronous form"),
        (fedavg(), {"over_selection": 2}, {"clients_per_round": 2}, "are for rounds"),
        (fedavg(), {"concurrency": 7}, {}, "it must be at most num_clients = 6"),
        (FedPAQ(**COMMON, compressor=TopK(ratio=0.2)), {}, {"budget": 10**6}, "A byte budget plans for rounds"),
        (fedavg(), {"availability": 0.5, "unavailable": "silent"}, {}, "give network.deadline"),
    ],
)
def test_what_does_not_go_together_is_refused(algorithm, network, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        simulation(algorithm, {"mode": "async", **network}, **options)
