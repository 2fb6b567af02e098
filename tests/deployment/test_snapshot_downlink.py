"""Down-messages that stand alone, over a deployment: the simulator's bits, and one message for whoever comes back."""

from dataclasses import replace

import pytest
import torch

from fedcef.deployment import ClientStore, Worker, one_client
from fedcef.deployment.identity import settings_digest
from fedcef.deployment.messages import OVERHEAD, decode_order
from fedcef.wire import FrameKind, head_of, split

from .loopback import Loopback
from .setting import equal, replayed, simulation, small_settings


def settings_of(**changes):
    method = {"algorithm": {"name": "fedcef", "downlink": "snapshot", "mixing": 0.5, "index_code": "context"}}
    signs = {"name": "topk", "ratio": 0.2, "values": "sign"}
    cohorts = {"num_clients": 6, "clients_per_round": 2, "rounds": 9}
    return small_settings(**{**method, "compressor": signs, "down_compressor": signs, **cohorts, **changes})


@pytest.mark.parametrize("cohort", [2, 6])
def test_a_deployment_is_the_simulation(tmp_path, cohort):
    settings = settings_of(clients_per_round=cohort)
    deployed, simulated = Loopback(settings, tmp_path), simulation(settings)
    down = 0
    for _ in range(settings.rounds):
        deployed.play()
        simulated.step()
        record, counted = deployed.records[-1], simulated.ledger.totals()
        assert equal(deployed.server.state.replica, simulated.replica)
        assert equal(deployed.server.state.server, simulated.server)
        assert torch.equal(deployed.server.state.model(), simulated.model())
        assert {name: record[name] for name in counted} == counted
        assert record["transport_down_bytes"] == down + cohort * record["round"] * OVERHEAD
        down = counted["wire_down_bytes"]
    assert deployed.outcomes.keys() == {"accepted"}
    assert equal(deployed.table(), simulated.clients)
    assert counted["wire_catch_up_bytes"] == 0


def test_whoever_was_away_gets_the_last_message_alone(tmp_path):
    loop = Loopback(settings_of(clients_per_round=2), tmp_path)
    away = 0
    for number in range(9):
        for client, order in loop.server.start_round(loop.now).items():
            order = decode_order(order)
            assert [head_of(frame) for frame in order.frames] == ([(FrameKind.DOWN, number - 1)] if number else [])
            have = loop.server.state.have[client]
            away += number - (have or 0) > 1
        loop.play()
    assert away > 4


@pytest.mark.parametrize("bits", [0, 2])
def test_whoever_began_elsewhere_gets_the_replica(tmp_path, bits):
    """Its z0 has other bits, as of another version of torch: messages that are made of z0 would never help it."""

    class Elsewhere(Loopback):
        def open_worker(self, client):
            problem = one_client(self.problem, client)
            problem = replace(problem, z0=problem.z0 + 1e-3) if client == 3 else problem
            store = ClientStore(self.folder(client), client, self.disks[client])
            return Worker(self.settings, problem, store, tell=self.notes.append)

    method = {"name": "fedcef", "downlink": "snapshot", "mixing": 0.5, "model_bits": bits}
    loop = Elsewhere(settings_of(clients_per_round=2, algorithm=method), tmp_path).run()
    rounds = [number for number, members in enumerate(loop.history) if 3 in members]
    assert rounds[0] > 0
    assert loop.outcomes == {"accepted": 18, "behind": 1}
    assert loop.notes == [f"The replica of round {rounds[0]} is not the server's; a snapshot is asked for."]


def test_a_run_recovers_from_its_folder(tmp_path):
    """Its server anew after every round, with a log of which the snapshot has all but the end."""
    settings = settings_of(snapshot_every=2)
    loop = Loopback(settings, tmp_path)
    for _ in range(9):
        loop.play()
        loop.server = loop._opened()
    simulated = simulation(settings)
    for _ in range(9):
        simulated.step()
    assert equal(loop.server.state.replica, simulated.replica)
    frames, _ = split((tmp_path / "server" / "round_log.bin").read_bytes())
    assert len(frames) < 9


def test_a_server_that_lost_its_log_sends_the_replica(tmp_path):
    """What a snapshot of its own has is in the log for those clients alone that have yet to get it."""
    settings = settings_of(snapshot_every=3)
    loop = Loopback(settings, tmp_path).run(3)
    (tmp_path / "server" / "round_log.bin").write_bytes(b"")
    loop.reopen_server()
    for order in loop.server.start_round(loop.now).values():
        assert [head_of(frame) for frame in decode_order(order).frames] == [(FrameKind.STATE, 3)]
    loop.run()
    assert equal(loop.server.state.replica, replayed(settings, loop.history).replica)
    assert loop.outcomes.keys() == {"accepted"}


def test_a_client_passes_over_earlier_messages(tmp_path):
    loop = Loopback(settings_of(snapshot_every=0), tmp_path).run()
    log = [bytes(frame) for frame in split((tmp_path / "server" / "round_log.bin").read_bytes())[0]]
    protocol = loop.server.protocol
    with torch.no_grad():
        seen, replica = protocol.follow(0, protocol.start(), log[-1])
        assert (seen, protocol.follow(seen, replica, log[3])) == (9, (9, replica))
    assert equal(replica, loop.server.state.replica)


def test_both_sides_must_code_the_model_alike():
    """And where it is not coded the option is not looked at: deployments begun before there was one go on."""

    def digest(**method):
        return settings_digest(small_settings(algorithm=method))

    for name in ({"name": "fedpaq"}, {"name": "fedcef", "downlink": "snapshot"}):
        assert len({digest(**name, model_bits=bits) for bits in (0, 1, 2)}) == 3
    assert digest(name="fedcef", model_bits=1) == digest(name="fedcef")


def test_fedpaq_with_a_coded_model_deployed(tmp_path):
    settings = settings_of(algorithm={"name": "fedpaq", "model_bits": 2}, down_compressor={})
    deployed, simulated = Loopback(settings, tmp_path).run(), simulation(settings)
    for _ in range(settings.rounds):
        simulated.step()
    assert equal(deployed.server.state.replica, simulated.replica)
    assert torch.equal(deployed.server.state.model(), simulated.model())
    assert deployed.records[-1]["wire_down_bytes"] == simulated.ledger.totals()["wire_down_bytes"]
