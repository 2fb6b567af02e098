"""Secure aggregation over Flower's messages: the simulator's bits, whoever leaves, and nothing but the sum."""

import json
import subprocess
import sys

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from deployment.setting import equal, replayed, simulation, small_settings
from fedcef.core.errors import RunError
from fedcef.deployment import Coordinator
from fedcef.deployment.messages import decode_result
from fedcef.flower.records import bytes_of, masks_of
from fedcef.secure.stages import Stage, decode_stage
from fedcef.wire import decode

from .in_process import InProcessGrid
from .setting import Deployed

RANDK = {"name": "randk", "ratio": 0.5}
FEDPAQ = {"algorithm": {"name": "fedpaq"}, "compressor": RANDK}


def settings(**changes):
    return small_settings(**{"rounds": 2, **FEDPAQ, "secure": {"range": 4.0, "block": 16}, **changes})


def stage_of(message):
    if message.metadata.message_type == "train":
        return Stage.MASKED
    data = bytes_of(message)
    return decode_stage(data).stage if data else None


class Leaving(InProcessGrid):
    """`leaves(client, stage, round)` says who takes a request and never answers it."""

    leaves = staticmethod(lambda client, stage, round_: False)

    def _push(self, message):
        node = next(n for n in self.nodes if n.node_id == message.metadata.dst_node_id)
        stage = stage_of(message)
        round_ = int(message.metadata.group_id or -1)
        node.silent = stage is not None and self.leaves(node.client, stage, round_)
        return super()._push(message)


def deployed(path, run, leaves=None, **options):
    made = Deployed(run, path, **options)
    made.grid.__class__ = Leaving
    if leaves:
        made.grid.leaves = leaves
    return made


def compare(made, run):
    """Replicas of all rounds, and bytes, with the simulator's for the cohorts that took part."""
    cohorts = [dict.fromkeys(record["clients"], False) for record in made.records]
    expected = replayed(run, cohorts)
    for found, wanted in zip(made.replicas, expected.replicas[1:], strict=True):
        assert equal(found, wanted)
    return cohorts


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"compressor": {"name": "identity"}, "secure": {"range": 4.0, "bits": 12, "block": 0}},
        {"algorithm": {"name": "fedcef"}, "secure": {"range": 20.0, "neighbours": 4}},
        {"algorithm": {"name": "ef21"}, "num_clients": 7, "clients_per_round": 4, "secure": {"range": 20.0}},
    ],
)
def test_it_is_the_simulators_run(tmp_path, changes):
    run = settings(**changes)
    made, simulated = deployed(tmp_path, run).run(), simulation(run)
    for record, replica in zip(made.records, made.replicas, strict=True):
        simulated.step()
        assert equal(replica, simulated.replica)
        counted = simulated.ledger.totals()
        assert {name: record[name] for name in counted} == counted
    assert made.told == [f"0 of {run.num_clients} clients are there; waiting for the others."]


def test_the_server_has_masked_messages_and_their_sum(tmp_path):
    """Nothing on its disk or in its mail is a client's message: those are none that the plain run has."""
    run = settings(rounds=1, snapshot_every=0)
    made, simulated = deployed(tmp_path, run).run(), simulation(run)
    round_ = simulated.engine.rounds.at(0)
    with torch.no_grad():
        up, _ = simulated.engine.work(simulated.state, round_)
    plain = up["change"]
    masked = [decode(decode_result(reply).frame).message["change"] for reply in made.server.state.replies.of_round(0)]
    assert len(masked) == 5
    far = [float((one.steps - row).abs().max()) for one, row in zip(masked, plain.steps, strict=True)]
    assert min(far) > 2 ** (plain.bits - 2)  # a mask is of any size
    total = decode(made.server.state.replies.total_of(0)).message["change"]
    assert torch.equal(total.steps, plain.steps.sum(0))
    assert all(decode_result(reply).samples == 1 for reply in made.server.state.replies.of_round(0))


@pytest.mark.parametrize("stage", [Stage.KEYS, Stage.SHARES, Stage.MASKED, Stage.UNMASK])
def test_clients_that_leave_between_stages(tmp_path, stage):
    """One of five leaves in round 1; who has sent its message is in the sum, also if it does not help to unmask."""
    run = settings()
    made = deployed(tmp_path, run, lambda client, at, round_: (client, at, round_) == (3, stage, 1)).run()
    cohorts = compare(made, run)
    assert [3 in cohort for cohort in cohorts] == [True, stage == Stage.UNMASK]
    assert not any("tried again" in told for told in made.told)


def test_some_leave_at_every_stage(tmp_path):
    run = settings(num_clients=9, secure={"range": 4.0, "threshold": 0.51})
    gone = {0: Stage.KEYS, 8: Stage.SHARES, 4: Stage.MASKED, 5: Stage.UNMASK}
    made = deployed(tmp_path, run, lambda client, at, round_: round_ == 1 and at >= gone.get(client, 9)).run()
    assert [sorted(cohort) for cohort in compare(made, run)] == [list(range(9)), [1, 2, 3, 5, 6, 7]]


@pytest.mark.parametrize("stage", [Stage.KEYS, Stage.SHARES, Stage.MASKED, Stage.UNMASK])
def test_below_the_threshold_the_round_is_tried_again_with_new_keys(tmp_path, stage):
    run, sessions = settings(rounds=2), []

    def leaves(client, at, round_):
        return round_ == 1 and at == stage and client in (1, 4) and len(sessions) < 3

    made = deployed(tmp_path, run, leaves)
    push = made.grid._push

    def watched(message):
        data = masks_of(message) or bytes_of(message)
        if message.metadata.message_type != "query" and decode_stage(data).session not in sessions:
            sessions.append(decode_stage(data).session)
        return push(message)

    made.grid._push = watched
    made.run()
    assert [sorted(cohort) for cohort in compare(made, run)] == [list(range(5))] * 2
    assert len(sessions) == 3
    said = [told for told in made.told if "tried again" in told]
    assert len(said) == 1
    assert said[0].startswith("Round 1 ")


def test_replies_under_the_masks_of_another_attempt_are_not_taken(tmp_path):
    """Two clients answer the first attempt while the second begins: these messages must not enter its sum."""
    run = settings(rounds=2)
    made = deployed(tmp_path, run)
    push, slow = made.grid._push, []

    def delayed(message):
        node = next(n for n in made.grid.nodes if n.node_id == message.metadata.dst_node_id)
        late = message.metadata.group_id == "1" and node.client in (1, 4) and stage_of(message) == Stage.MASKED
        began_again = len(slow) == 2 and node.client == 0 and stage_of(message) == Stage.KEYS
        node.slow_s = 60.0 if late and len(slow) < 2 else 20.0 if began_again else 0.0
        slow.extend([node.client] if node.slow_s else [])
        return push(message)

    made.grid._push = delayed
    made.run()
    assert slow == [1, 4, 0]
    assert [told for told in made.told if "again" in told] == ["Round 1 has too few replies; it is tried again."]
    assert [sorted(cohort) for cohort in compare(made, run)] == [list(range(5))] * 2


def test_a_client_does_not_send_what_is_not_masked(tmp_path):
    made = deployed(tmp_path, settings(rounds=1))
    made.loop()._look()
    for client in range(5):
        made.server.enroll(f"client-{client}", client)
    order = made.server.start_round(0.0)[0]
    from fedcef.flower.run_client import handle

    reply = handle(order, made.grid.run_config, made.grid.nodes[0].node_config)
    assert b"the order came without what masks are made of" in reply


def test_a_client_that_always_refuses_is_named(tmp_path):
    made = deployed(tmp_path, settings(rounds=1))
    for node in made.grid.nodes[:2]:
        (made.grid.state / f"client-{node.client}").mkdir(parents=True)
        (made.grid.state / f"client-{node.client}" / "secure.session").mkdir()  # nothing can be written there
    with pytest.raises(RunError, match=r"Round 0 cannot be unmasked: .* It was so 4 times; client 0 says: "):
        made.run()


def test_a_node_that_is_started_again_goes_on_with_its_session(tmp_path):
    """It leaves after the shares and comes back under another id while its message is waited for."""
    run = settings(rounds=2)
    made = deployed(tmp_path, run)
    sleep, state = made.grid.sleep, {}
    made.grid.leaves = lambda client, at, round_: (client, at, round_) == (2, Stage.MASKED, 1) and "back" not in state

    def passing(seconds):
        sleep(seconds)
        if made.server.round == 1 and len(made.server.open.accepted) == 4 and "back" not in state:
            state["back"] = next(n for n in made.grid.nodes if n.client == 2).online = False
            made.grid.join(2)

    made.grid.sleep = passing
    made.run()
    assert [sorted(cohort) for cohort in compare(made, run)] == [list(range(5))] * 2


class Stop(Exception):
    pass


@pytest.mark.parametrize("stage", [Stage.MASKED, Stage.UNMASK])
def test_a_server_that_is_killed_begins_the_round_anew(tmp_path, stage):
    run = settings()
    made = deployed(tmp_path, run)

    def killed(client, at, round_):
        if (client, at, round_) == (2, stage, 1):
            raise Stop
        return False

    made.grid.leaves = killed
    with pytest.raises(Stop):
        made.run()
    again = Deployed(run, tmp_path, resume=True)
    again.records, again.replicas = made.records, made.replicas
    again.run()
    assert [sorted(cohort) for cohort in compare(again, run)] == [list(range(5))] * 2


def test_rounds_are_gone_through_again_from_their_sums(tmp_path):
    """Without its log the server ends the rounds since the snapshot once more, from masked replies and sums."""
    run = settings(snapshot_every=0)
    made = deployed(tmp_path, run).run()
    (tmp_path / "server" / "round_log.bin").unlink()
    recovered = Coordinator.recover(tmp_path / "server")
    assert equal(recovered.state.replica, made.server.state.replica)
    assert recovered.round == 2


def test_a_stage_starts_no_torch():
    code = "import sys, fedcef.flower.run_stage; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_sessions_are_private_to_the_client(tmp_path):
    made = deployed(tmp_path, settings(rounds=1)).run()
    path = made.grid.state / "client-0" / "secure.session"
    assert path.stat().st_mode & 0o077 == 0
    session = json.loads(path.read_text("utf-8"))
    assert set(session["shares"]) == {"0", "1", "2", "3", "4"}


def test_noise_on_the_sum_is_the_servers_own(tmp_path):
    pytest.importorskip("dp_accounting")
    private = {"clip": 2.0, "noise": 0.5, "added_by": "server"}
    run = settings(rounds=2, privacy=private, snapshot_every=0)
    made = deployed(tmp_path, run).run()
    other = deployed(tmp_path.with_name("other"), run) if tmp_path.with_name("other").mkdir() is None else None
    other.run()
    simulated = simulation(run)
    simulated.step()
    points = [made.replicas[0]["z"], other.replicas[0]["z"], simulated.replica["z"]]
    assert not any(torch.equal(a, b) for a, b in zip(points, points[1:] + points[:1], strict=True))
    assert made.summary["epsilon"] == pytest.approx(simulated_epsilon(0.5, 2))
    secret = tmp_path / "server" / "noise.secret"
    assert secret.stat().st_mode & 0o077 == 0
    (tmp_path / "server" / "round_log.bin").unlink()  # the rounds end again, with the same noise
    assert equal(Coordinator.recover(tmp_path / "server").state.replica, made.server.state.replica)


def simulated_epsilon(noise, messages):
    from fedcef.privacy import epsilon

    return epsilon(noise, messages, 1e-5)
