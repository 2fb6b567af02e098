"""Messages coded in the context of the replica, over a deployment: the same bits, and the bytes that are counted."""

import shutil

import pytest
import torch

from fedcef.deployment import DeploymentSettings
from fedcef.deployment.accepted_replies import AcceptedReplies
from fedcef.deployment.messages import OVERHEAD, RESULT_OVERHEAD, decode_result
from fedcef.wire import FrameKind, WireError, decode, split

from .fault_kinds import CLIENT, SERVER
from .loopback import Loopback
from .setting import equal, replayed, simulation, small_settings

SIGNS = {"name": "stc", "ratio": 0.05}
DIGITS = {"data": {"name": "digits"}, "model": {"name": "mlp"}, "batch_size": 8, "local_lr": 0.05}
"""Vectors that are long enough for a context to pay, and entries (of dark pixels) that are never sent."""


def settings_of(downlink="lossy", **changes):
    method = {"algorithm": {"name": "fedcef", "downlink": downlink, "index_code": "context"}, "compressor": SIGNS}
    lossy = {"down_compressor": SIGNS} if downlink == "lossy" else {}
    cohorts = {"num_clients": 6, "clients_per_round": 2, "rounds": 8}
    return small_settings(**{**method, **lossy, **DIGITS, **cohorts, **changes})


def needs_context(frame):
    try:
        decode(frame)
    except WireError:
        return True
    return False


@pytest.mark.parametrize("cohort", [2, 6])
@pytest.mark.parametrize("downlink", ["lossy", "increment"])
def test_a_deployment_is_the_simulation(tmp_path, cohort, downlink):
    settings = settings_of(downlink, clients_per_round=cohort, snapshot_every=0)
    deployed, simulated = Loopback(settings, tmp_path), simulation(settings)
    down = 0
    for _ in range(settings.rounds):
        deployed.play()
        simulated.step()
        record, counted = deployed.records[-1], simulated.ledger.totals()
        assert equal(deployed.server.state.replica, simulated.replica)
        assert {name: record[name] for name in counted} == counted
        messages = cohort * record["round"]
        assert record["transport_up_bytes"] == record["wire_up_bytes"] + messages * RESULT_OVERHEAD
        assert record["transport_down_bytes"] == down + messages * OVERHEAD
        down = counted["wire_down_bytes"]
    assert deployed.outcomes.keys() == {"accepted"}
    assert equal(deployed.table(), simulated.clients)
    log, _ = split((tmp_path / "server" / "round_log.bin").read_bytes())
    assert any(needs_context(frame) for frame in log)


def test_entries_that_do_not_come_next_are_passed_over(tmp_path):
    """They cannot be decoded: the replica has not, or no longer, what they were coded in."""
    loop = Loopback(settings_of(snapshot_every=0), tmp_path).run()
    log = [bytes(frame) for frame in split((tmp_path / "server" / "round_log.bin").read_bytes())[0]]
    last = max(round_ for round_, frame in enumerate(log) if needs_context(frame))
    protocol = loop.server.protocol
    seen, replica = 0, protocol.start()
    with torch.no_grad():
        assert protocol.follow(seen, replica, log[last]) == (0, replica)
        for frame in log:
            seen, replica = protocol.follow(seen, replica, frame)
            assert protocol.follow(seen, replica, frame) == (seen, replica)
    assert equal(replica, loop.server.state.replica)


def test_what_a_client_sent_can_be_read_without_the_contexts_of_old_rounds(tmp_path):
    """A client that lost its state is taken out of the sums, whose messages were coded in replicas that are gone."""
    settings = settings_of(clients_per_round=6, rounds=9, snapshot_every=4)
    loop = Loopback(settings, tmp_path).run(6)
    state = loop.server.state
    replies = AcceptedReplies(tmp_path / "server" / "accepted.bin", loop.server_disk)
    assert any(needs_context(decode_result(reply).frame) for reply in replies.of_round(5))
    for client, own in enumerate(loop.table()["c_i"]):
        assert torch.equal(state.sums.of(client, replies, 6)["delta"], own)
    shutil.rmtree(loop.folder(2))
    loop.workers[2] = loop.open_worker(2)
    loop.reopen_server()
    loop.run()
    assert loop.history[6][2]
    reference = replayed(settings, loop.history)
    assert equal(loop.server.state.replica, reference.replica)
    assert equal(loop.table(), reference.clients)


@pytest.mark.parametrize("kinds", [SERVER, CLIENT], ids=["server", "clients"])
def test_with_faults(tmp_path, kinds):
    deployment = DeploymentSettings(deadline_s=50, min_clients=2)
    settings = settings_of(clients_per_round=4, snapshot_every=3)
    loop = Loopback(settings, tmp_path, deployment=deployment, seed=1, chance=0.08, kinds=kinds).run()
    assert sum(loop.faults.values()) > 4
    assert equal(loop.server.state.replica, replayed(settings, loop.history).replica)


def test_the_running_mean_is_the_simulators(tmp_path):
    settings = small_settings("fedcef", averaging=0.9, server_schedule={"name": "step", "every": 2})
    deployed, simulated = Loopback(settings, tmp_path), simulation(settings)
    for t in range(settings.rounds):
        deployed.play()
        simulated.step()
        if t in (3, 7):
            deployed.reopen_server()
        assert torch.equal(deployed.server.state.model(), simulated.model()), t
    assert not torch.equal(simulated.model(), simulated.replica["z"])
    assert decode(deployed.server.state.snapshot_frame).kind == FrameKind.STATE
