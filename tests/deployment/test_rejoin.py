"""A client that lost its state begins afresh, and the sums that everyone holds follow: c = mean c_i, and the like."""

import shutil

import pytest
import torch

from fedcef.algorithms import ALGORITHMS
from fedcef.deployment import DeploymentSettings
from fedcef.deployment.protocol import Protocol

from .loopback import Loopback
from .setting import LASSO, equal, replayed, small_settings

KEPT = {
    "fedcef": lambda a, replica, server: {"c_i": server.get("c", replica["c"])},
    "scaffold": lambda a, replica, server: {"c_i": replica["c"]},
    "scallion": lambda a, replica, server: {"c_i": replica["c"]},
    "scafcom": lambda a, replica, server: {"c_i": replica["c"]},
    "ef21": lambda a, replica, server: {"g_i": server["g"]},
    "ef21_sgdm": lambda a, replica, server: {"g_i": server["g"]},
    "ef21_prox": lambda a, replica, server: {"g_i": server["g"]},
    "ef21_bc": lambda a, replica, server: {"g_i": server["g"]},
    "ef21_pp": lambda a, replica, server: {"g_i": server["g"]},
    "dasha_pp": lambda a, replica, server: {"g_i": server["g"]},
    "econtrol": lambda a, replica, server: {"g_i": server["g"]},
    "feddyn": lambda a, replica, server: {"g_i": server["g"]},
    "feddc": lambda a, replica, server: {"d_i": server["d"], "g_i": replica["g"]},
    "scaffnew": lambda a, replica, server: {"d_i": replica["d"]},
    "locodl": lambda a, replica, server: {"a_i": -2 * replica["v"]},
    "fedcomgate": lambda a, replica, server: {"d_i": replica["d"]},
    "feddr": lambda a, replica, server: {"x_hat": server["x_tilde"]},
    "fedadmm": lambda a, replica, server: {"x_hat": server["x_tilde"]},
}
"""By method: the sums that server or replica hold, under the name of the client vector whose mean they are."""


def client_vectors(algorithm, clients):
    if "y_i" in clients:
        return {"x_hat": 2 * clients["x_i"] - clients["y_i"]}
    if "u_i" in clients:
        return {"x_hat": clients["x_i"] + algorithm.penalty_step * clients["u_i"]}
    return clients


def settings_of(name, **changes):
    compressor = {"name": "topk", "ratio": 0.2} if ALGORITHMS[name].compresses else {"name": "identity"}
    return small_settings(algorithm={"name": name}, compressor=compressor, rounds=7, precision="float64", **changes)


def lose(loop, client):
    shutil.rmtree(loop.folder(client), ignore_errors=True)
    loop.workers[client] = loop.open_worker(client)


def with_state(kept):
    problem = small_settings().build_problem()
    return [
        name
        for name, kind in ALGORITHMS.items()
        if kind().client_init(problem.z0) and (kind.adds_up is not None) == kept
    ]


def test_methods_say_what_is_left_of_a_lost_state():
    assert set(KEPT) == {name for name in with_state(True) if ALGORITHMS[name].adds_up}
    assert set(with_state(False)) == {"zhang", "compressed_scaffnew", "tamuna", "fedcomloc"}


@pytest.mark.parametrize("name", with_state(True))
def test_a_client_begins_afresh(tmp_path, name):
    settings = settings_of(name)
    loop = Loopback(settings, tmp_path).run(4)  # one round after a snapshot
    lose(loop, 2)
    loop.run(5)
    assert loop.history[4] == {0: False, 1: False, 2: True, 3: False, 4: False}
    lose(loop, 0)
    loop.run()
    reference = replayed(settings, loop.history)
    assert equal(loop.server.state.replica, reference.replica)
    assert equal(loop.server.state.server, reference.server)
    assert equal(loop.table(), reference.clients)
    algorithm = Protocol(settings, settings.build_problem()).algorithm
    vectors = client_vectors(algorithm, reference.clients)
    state = loop.server.state
    for part, total in KEPT[name](algorithm, state.replica, state.server).items() if name in KEPT else ():
        torch.testing.assert_close(total, vectors[part].mean(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("downlink", ["dense", "lossy", "snapshot"])
def test_with_the_other_downlinks(tmp_path, downlink):
    settings = small_settings(f"fedcef {downlink}", rounds=9, precision="float64", clients_per_round=4)
    loop = Loopback(settings, tmp_path).run(4)
    for client in (1, 2):
        lose(loop, client)
    loop.run()
    reference = replayed(settings, loop.history)
    assert any(any(members.values()) for members in loop.history)
    assert equal(loop.server.state.replica, reference.replica)
    known = loop.server.state.server["c_mean" if downlink == "snapshot" else "c"]
    torch.testing.assert_close(known, reference.clients["c_i"].mean(0), rtol=0, atol=1e-12)


def test_weighted_by_samples(tmp_path):
    data = {"data": {"name": "digits"}, "model": {"name": "softmax"}}
    settings = small_settings("fedcef", rounds=5, precision="float64", weighting="samples", **data)
    loop = Loopback(settings, tmp_path).run(3)
    lose(loop, 1)
    loop.run()
    reference = replayed(settings, loop.history)
    assert equal(loop.server.state.replica, reference.replica)
    weights = loop.problem.sizes.double() / loop.problem.sizes.sum()
    c = (weights[:, None] * reference.clients["c_i"]).sum(0)
    torch.testing.assert_close(loop.server.state.replica["c"], c, rtol=0, atol=1e-12)


def test_the_server_s_sum_is_the_client_s_state_bit_for_bit(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(8)
    state, table = loop.server.state, loop.table()
    for client in range(5):
        assert torch.equal(state.sums.of(client, state.replies, 8)["delta"], table["c_i"][client])


def test_sums_are_kept_where_they_are_needed_only(tmp_path):
    Loopback(small_settings("fedda"), tmp_path / "a").run()
    assert not (tmp_path / "a" / "server" / "sums").exists()
    Loopback(small_settings("fedcef"), tmp_path / "b").run()
    assert len(list((tmp_path / "b" / "server" / "sums").iterdir())) == 5


def test_zhang_cannot_go_on_without_a_state_and_says_so(tmp_path):
    loop = Loopback(small_settings("zhang"), tmp_path).run(3)
    lose(loop, 2)
    loop._send_all(loop.server.start_round(loop.now))
    while loop.queue:
        loop._deliver_next()
    assert loop.outcomes["lost state"] == 1
    assert loop.server.stalled(loop.now)
    line = (tmp_path / "server" / "refused.jsonl").read_text().splitlines()[-1]
    assert "zhang cannot do without a client's state" in line


def test_a_second_run_with_the_same_settings_begins_afresh(tmp_path):
    """Clients keep the states of both; a late order of the first does not touch the second's."""
    settings = small_settings("fedcef", data=LASSO)
    first = Loopback(settings, tmp_path / "first").run(3)
    late = first.server.start_round(0.0)[1]
    second = Loopback(settings, tmp_path / "second")
    for client in range(5):
        shutil.copytree(first.folder(client), second.folder(client))
    second.run(2)
    assert any("are of other runs" in note for note in second.notes)
    reply = second.workers[1].handle(late)
    assert second.server.receive(second.name(1), reply).reason == "another run"
    second.run()
    assert equal(second.server.state.replica, replayed(settings, second.history).replica)
    assert not any(any(members.values()) for members in second.history)


def test_a_fresh_message_may_be_larger_than_those_of_the_others(tmp_path):
    """Late in a run others send little; who begins afresh sends as much as everyone did at first."""
    settings = small_settings("fedcef", rounds=14, compressor={"name": "identity"}, batch_size=0, local_lr=0.03)
    loop = Loopback(settings, tmp_path, deployment=DeploymentSettings(outlier_factor=5)).run(10)
    lose(loop, 2)
    loop.run()
    assert loop.outcomes.keys() <= {"accepted", "behind"}
    assert loop.history[10][2]


def test_a_kill_while_the_sums_are_brought_up_to_date(tmp_path):
    """What a client had sent is counted once, wherever the server was killed from snapshot to emptied accepted.bin."""
    settings = small_settings("fedcef dense", rounds=7, num_clients=3)
    Loopback(settings, tmp_path / "before").run(5)  # the next round ends with the second snapshot
    kills = 0
    for step in range(4, 22):
        shutil.copytree(tmp_path / "before", tmp_path / str(step))
        loop = Loopback(settings, tmp_path / str(step))
        loop.history = [dict.fromkeys(range(3), False)] * 5
        loop._send_all(loop.server.start_round(loop.now))
        while not loop.server.can_close(loop.now):
            loop._deliver_next()
        loop.server_disk.arm("kill", step)
        before = loop.server
        loop._close()
        kills += loop.server is not before
        lose(loop, 2)
        loop.run()
        reference = replayed(settings, loop.history)
        assert equal(loop.server.state.replica, reference.replica), step
        assert equal(loop.server.state.server, reference.server), step
    assert kills >= 14
