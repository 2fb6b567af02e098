"""Rounds with a clock: what changes, and what must not."""

import pytest
import torch

from fedcef.algorithms import Scaffnew, Zhang
from fedcef.algorithms.compressed_scaffnew import CompressedScaffnew
from fedcef.algorithms.tamuna import TAMUNA
from fedcef.core.errors import ConfigError
from fedcef.core.network import Network
from fedcef.simulation.network.population import Drawn
from fedcef.wire import frame_nbytes

from .setting import COMMON, fedavg, fedcef, played, same, simulation, trace


@pytest.mark.parametrize("clients_per_round", [0, 3])
@pytest.mark.parametrize("network", [{}, {"deadline": 1e9}, {"preset": "3g", "server_mbit": 0.1}])
def test_a_clock_alone_changes_nothing(clients_per_round, network):
    plain, none = played(fedcef(), None, clients_per_round=clients_per_round)
    timed, clocks = played(fedcef(), network, clients_per_round=clients_per_round)
    assert same(plain, timed)
    assert none == [{}] * 5
    assert "network" not in plain.parts()
    assert [clock["arrivals"] for clock in clocks] == [clients_per_round or 6] * 5
    times = [clock["sim_s"] for clock in clocks]
    assert times == sorted(times)
    assert times[0] > 0


def test_a_round_lasts_as_long_as_its_slowest_client():
    """Down and up by hand from the formula: nothing in the first round, then one frame each."""
    run, clocks = played(fedavg(), {"spread": 0.7}, rounds=2)
    links = Drawn(Network(spread=0.7), 0).links(torch.arange(6))
    totals = run.ledger.totals()
    up, down = totals["wire_up_bytes"] / 12, totals["wire_down_bytes"] / 12  # of a frame
    first = 2 * links.latency + 3 * links.step + 8 * up / links.up
    second = first + 8 * down / links.down
    assert clocks[0]["sim_s"] == pytest.approx(float(first.max()), abs=1e-6)
    assert clocks[1]["sim_s"] == pytest.approx(float(first.max() + second.max()), abs=1e-6)


def test_who_comes_too_late_is_as_if_it_had_not_been_asked(tmp_path):
    """Clients 4 and 5 never arrive within the deadline: the others' rounds, played by hand without them."""
    path = trace(tmp_path, 0.1, 0.2, 0.3, 0.4, 9.0, 9.0)
    run, clocks = played(fedcef(), {"trace": path, "deadline": 2.0}, rounds=3)
    assert [(clock["sim_s"], clock["arrivals"]) for clock in clocks] == [(2.0, 4), (4.0, 4), (6.0, 4)]
    assert not run.clients["c_i"][4:].any()
    assert run.clients["c_i"][:4].any(-1).all()
    assert float(run.diagnostics()["control_gap"]) <= 1e-12
    hand = simulation(fedcef(), None)
    engine, state, some, everyone = hand.engine, hand.state, torch.arange(4), torch.arange(6)
    for number in range(3):
        round_ = engine.rounds.at(number, some)
        assert round_.share == 4 / 6
        state, _, _ = engine.close(state, round_, *engine.work(state, round_), everyone)
    assert torch.equal(run.model(), engine.algorithm.model(state.replica))
    assert torch.equal(run.clients["c_i"], state.clients.tensors()["c_i"])
    assert run.ledger.totals() == state.ledger.totals()  # nothing of the late replies was sent, and all was received


def test_of_a_late_reply_counts_what_was_sent(tmp_path):
    """A frame of n bytes takes a second; client 1 begins to send it when half of the second is left."""
    size = int(frame_nbytes(_message()))
    path = trace(tmp_path, 0.0, 0.1, 0.0, 0.0, 0.0, 3.0, up=8.0 * size)
    run, clocks = played(fedavg(local_steps=5), {"trace": path, "deadline": 1.0}, rounds=1)
    assert clocks == [{"sim_s": 1.0, "arrivals": 4}]
    assert run.ledger.totals()["wire_up_bytes"] == 4 * size + size // 2


def _message():
    run = simulation(fedavg(), None)
    up, _ = run.engine.work(run.state, run.engine.rounds.at(0, torch.tensor([0])))
    return {name: payload.rows()[0] for name, payload in up.items()}


def test_the_first_to_arrive_take_part(tmp_path):
    path = trace(tmp_path, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
    network = {"trace": path, "over_selection": 2.0}
    run, clocks = played(fedavg(local_steps=1), network, rounds=3, clients_per_round=3)
    assert [clock["sim_s"] for clock in clocks] == pytest.approx([0.3, 0.6, 0.9])  # of all six, 3, 4 and 5 are first
    assert run.ledger.totals()["wire_up_bytes"] == 3 * 3 * int(frame_nbytes(_message()))  # the others had not begun to


def test_clients_that_are_away_are_not_drawn(tmp_path):
    windows = dict.fromkeys((0, 2, 5), (0, 100)) | dict.fromkeys((1, 3, 4), (100, 200))
    path = trace(tmp_path, *[10.0] * 6, windows=windows)
    run = simulation(fedavg(local_steps=1), {"trace": path}, clients_per_round=2)
    asked = []
    for _ in range(21):
        asked.append((run.state.clock.begins, run.state.clock.asked.tolist()))
        run.step()
    assert len({tuple(clients) for _, clients in asked}) > 4
    for at, clients in asked:
        assert len(clients) == 2
        assert set(clients) <= ({0, 2, 5} if at % 200 < 100 else {1, 3, 4})


def test_a_server_waits_until_someone_is_there(tmp_path):
    path = trace(tmp_path, *[1.0] * 6, windows=dict.fromkeys(range(6), (50, 52)))
    _, clocks = played(fedavg(local_steps=1), {"trace": path}, rounds=4, clients_per_round=2)
    assert [clock["sim_s"] for clock in clocks] == [51.0, 52.0, 103.0, 104.0]


def test_silent_clients_cost_deadlines_and_others_are_asked(tmp_path):
    """Only client 3 ever answers: rounds are tried until it is asked, and every attempt takes the deadline."""
    windows = dict.fromkeys((0, 1, 2, 4, 5), (1000, 1001)) | {3: (0, 1001)}
    path = trace(tmp_path, *[0.5] * 6, windows=windows)
    network = {"trace": path, "unavailable": "silent", "deadline": 7.0}
    run, clocks = played(fedavg(local_steps=1), network, rounds=4, clients_per_round=1)
    ends = [0.0, *(clock["sim_s"] for clock in clocks)]
    rounds = run.engine.rounds
    for number in range(4):
        attempts = next(a for a in range(100) if rounds.cohort(number, 1, a).tolist() == [3])
        assert ends[number + 1] - ends[number] == pytest.approx(7.0 * attempts + 0.5)
    assert run.ledger.totals()["wire_up_bytes"] == 4 * int(frame_nbytes(_message()))


def test_a_clock_goes_on_where_it_was():
    network = {"deadline": 0.3, "over_selection": 1.5, "availability": 0.7, "availability_s": 0.2}
    whole, clocks = played(fedcef(), network, rounds=8, clients_per_round=3)
    half, _ = played(fedcef(), network, rounds=4, clients_per_round=3)
    again = simulation(fedcef(), network, clients_per_round=3)
    again.restore(4, {part: {n: t.clone() for n, t in tensors.items()} for part, tensors in half.parts().items()})
    assert again.clock() == clocks[3]
    for _ in range(4):
        again.step()
    assert again.clock() == clocks[-1]
    assert same(whole, again)


def test_a_budget_plays_rounds_on_a_network():
    network = {"over_selection": 1.5, "deadline": 0.4}
    run = simulation(fedcef(), network, rounds=6, clients_per_round=3, budget=5000)
    clocks = []
    for _ in range(6):
        run.step()
        clocks.append(run.clock())
    assert 4000 < run.ledger.sent() <= 5000
    assert clocks[-1]["sim_s"] > clocks[0]["sim_s"]


def test_a_million_clients_cost_nothing_until_they_are_asked():
    drawn = Drawn(Network(availability=0.5), seed=0)
    clients = torch.tensor([0, 999_999])
    assert drawn.links(clients).up.shape == drawn.available(clients, 5.0).shape == (2,)
    assert not vars(drawn).keys() - {"network", "seed"}


@pytest.mark.parametrize(
    ("algorithm", "network", "options", "sentence"),
    [
        (Zhang(**COMMON), {"deadline": 1}, {}, "Zhang needs all clients in every round"),
        (Zhang(**COMMON), {"availability": 0.5}, {}, "Zhang needs all clients in every round"),
        (CompressedScaffnew(**COMMON, senders=2), {"deadline": 1}, {}, "deals its entries out among the clients"),
        (TAMUNA(**COMMON, senders=2), {"over_selection": 2}, {"clients_per_round": 3}, "deals its entries out"),
        (fedcef(), {"deadline": 1}, {"weighting": "samples"}, "FedCEF needs all clients in every round"),
        (fedcef(), {"over_selection": 1.5}, {}, "all of them take part; give clients_per_round"),
        (fedcef(), {"availability": 0.5, "unavailable": "silent"}, {}, "wait for ever"),
        (fedcef(), {"trace": "x.csv", "availability": 0.5}, {}, "which cannot be read"),
        (fedcef(), {"buffer": 5}, {}, "In rounds network.buffer has no effect; leave it out, or take"),
        (fedcef(), {"discount": 0.0}, {}, "In rounds network.discount has no effect"),
        (fedcef(), {"availability_s": 60}, {}, "always there, so that network.availability_s has no effect; leave it"),
        (fedcef(), {"unavailable": "silent", "deadline": 1}, {}, "so that network.unavailable has no effect"),
        (
            fedcef(),
            {"at_least": 2},
            {"clients_per_round": 3},
            "how many replies a deadline waits for, and there is none",
        ),
        (fedcef(), {"deadline": 1, "at_least": 4}, {"clients_per_round": 3}, "at_least is 4; it must be at most the 3"),
    ],
)
def test_what_does_not_go_together_is_refused(algorithm, network, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        simulation(algorithm, network, **options)


def test_methods_that_need_everyone_may_have_a_clock():
    for algorithm in (Zhang(**COMMON), Scaffnew(**COMMON)):
        plain, _ = played(algorithm, None, rounds=2)
        timed, _ = played(algorithm, {}, rounds=2)
        assert same(plain, timed)
