"""The two apps: enrolment, stragglers, failures, stopping and going on."""

import hashlib
import json
import signal

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict
from safetensors.torch import load_file

from deployment.setting import equal, small_settings
from fedcef.core.errors import FedcefError
from fedcef.deployment import DeploymentSettings
from fedcef.flower import server_app
from fedcef.flower.client_app import app as client_app
from fedcef.flower.round_loop import Stopped
from fedcef.simulation.evaluation import Evaluator

from .in_process import InProcessGrid
from .setting import Deployed, reference


def refused(deployed):
    path = deployed.path / "server" / "refused.jsonl"
    return [json.loads(line)["reason"] for line in path.read_text().splitlines()] if path.exists() else []


# the server's app


def test_the_server_writes_a_run_folder_as_the_simulator_does(tmp_path, served, capsys):
    settings, call = served
    summary = call(out=str(tmp_path / "run"))
    simulated = reference(settings)
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert equal(model, dict(settings.build_problem().layout.unflatten(simulated.model())))
    records = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records if "accuracy" in record] == [0, 2, 4, 6]
    measured = Evaluator(settings.build_problem(), simulated.algorithm.step)(simulated.model())
    assert {name: records[-1][name] for name in measured} == measured
    assert summary["accuracy"] == measured["accuracy"]
    printed = capsys.readouterr().out
    assert "round 6/6  accuracy" in printed
    assert f"Finished: {tmp_path / 'run'}" in printed


def test_a_signal_stops_the_server_and_the_run_goes_on_later(tmp_path, served, capsys, monkeypatch):
    settings, call = served
    passed_on = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: passed_on.append(number))
    counted = iter(range(100))
    pull = InProcessGrid.pull_messages

    def pull_and_signal(self, ids):
        if next(counted) == 4:
            signal.raise_signal(signal.SIGTERM)
        return pull(self, ids)

    try:
        monkeypatch.setattr(InProcessGrid, "pull_messages", pull_and_signal)
        assert call(out=str(tmp_path / "run")) is None
    finally:
        signal.signal(signal.SIGTERM, before)
    assert passed_on == [signal.SIGTERM]
    assert f"'resume=\"{tmp_path / 'run'}\"'" in capsys.readouterr().err.replace("\n", "")
    assert not (tmp_path / "run" / "summary.json").exists()
    call(resume=str(tmp_path / "run"))
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert equal(model, dict(settings.build_problem().layout.unflatten(reference(settings).model())))


def test_what_a_server_cannot_measure_is_told(served, tmp_path, capsys):
    _, call = served
    call(out=str(tmp_path / "run"), set="eval.optimum=true")
    assert "the records of this run have no gap" in " ".join(capsys.readouterr().err.split())


def test_measures_of_samples_that_only_clients_have_are_told(monkeypatch):
    from fedcef.deployment import without_data
    from fedcef.flower import run_server

    said = []
    monkeypatch.setattr(run_server, "tell", said.append)
    settings = small_settings("fedcef", eval={"per_client": True})
    problem = settings.build_problem()
    for known in (problem, without_data(problem)):
        run_server._measures(settings, known)
    (sentence,) = said
    assert sentence.startswith("eval.per_client: these measures are of the clients' own samples")


def test_a_mistake_is_one_sentence(tmp_path, capsys):
    grid = InProcessGrid(client_app, {"experiment": "nothing"}, state=tmp_path, clients=0)
    with pytest.raises(FedcefError):
        server_app.main(grid, type("Context", (), {"run_config": grid.run_config})())
    assert "Error: There is no experiment 'nothing'" in capsys.readouterr().err.replace("\n", " ")


# nodes


def test_going_on_after_a_stop_in_the_middle_of_a_round(tmp_path):
    settings = small_settings("fedcef")
    deployed = Deployed(settings, tmp_path)
    calls = iter(range(1000))
    with pytest.raises(Stopped):
        deployed.loop(stopped=lambda: next(calls) == 5).run()
    assert 0 < deployed.server.round < settings.rounds
    again = Deployed(settings, tmp_path, resume=True).run()
    assert again.records[0]["round"] == deployed.server.round + 1
    assert equal(again.server.state.replica, reference(settings).replica)


def test_nodes_that_are_no_clients_are_refused_and_the_others_go_on(tmp_path):
    settings = small_settings("fedcef", rounds=3)
    deployed = Deployed(settings, tmp_path)
    stranger, mute = deployed.grid.join(5), deployed.grid.join(0)
    mute.node_config.pop("partition-id")
    deployed.run()
    assert [message.metadata.message_type for message in stranger.seen] == ["query"]
    assert any("asks to be client 5" in sentence for sentence in deployed.told)
    assert any("does not say which client it is" in sentence for sentence in deployed.told)
    assert equal(deployed.server.state.replica, reference(settings).replica)


def test_a_key_s_number_is_nobody_else_s(tmp_path):
    settings = small_settings("fedcef", rounds=3)
    deployed = Deployed(settings, tmp_path, deployment=DeploymentSettings(deadline_s=50, identity="key"))
    thief = deployed.grid.join(2, node_id=1, key=b"another key")  # asked first
    deployed.grid.nodes[2].node_config["partition-id"] = 2
    deployed.server.enroll("key-" + _digest(deployed.grid.nodes[2].public_key), 2)
    deployed.run()
    assert [message.metadata.message_type for message in thief.seen] == ["query"]
    assert any("Node 1 is refused" in sentence for sentence in deployed.told)
    assert equal(deployed.server.state.replica, reference(settings).replica)


def _digest(key):
    return hashlib.sha256(key).hexdigest()[:32]


def test_a_client_that_is_started_again_comes_back_under_another_node_id(tmp_path):
    settings = small_settings("fedcef", rounds=4)
    deployed = Deployed(settings, tmp_path)
    deployed.grid.nodes[1].silent = True  # killed in its first round
    waits = iter(range(10_000))

    def stopped():
        if next(waits) == 20:
            deployed.grid.nodes[1].online = False
            deployed.grid.join(1, node_id=77)
        return False

    deployed.summary = deployed.loop(stopped).run()
    assert [record["accepted"] for record in deployed.records] == [5] * 4
    assert equal(deployed.server.state.replica, reference(settings).replica)


@pytest.mark.parametrize("away", [range(100, 200), range(0)], ids=["for long", "between two looks"])
def test_a_client_with_a_key_is_started_again_and_nobody_waits_for_the_deadline(tmp_path, away):
    """It comes back under its old node id, and its order was lost with its process."""
    settings = small_settings("fedcef", rounds=4)
    deployed = Deployed(settings, tmp_path, deployment=DeploymentSettings(deadline_s=500, identity="key"))
    node, waits = deployed.grid.nodes[1], iter(range(10_000))

    def stopped():
        wait = next(waits)
        node.silent = bool(node.seen) and wait < 200  # killed when it had said who it is
        node.online, node.since = wait not in away, "later" if wait >= 200 else "at first"
        return False

    deployed.summary = deployed.loop(stopped).run()
    assert [record["accepted"] for record in deployed.records] == [5] * 4
    assert deployed.grid.now < 100
    assert equal(deployed.server.state.replica, reference(settings).replica)


def test_a_straggler_s_reply_is_late_and_counted(tmp_path):
    settings = small_settings("fedcef", rounds=6)
    deployed = Deployed(settings, tmp_path, deployment=DeploymentSettings(deadline_s=50, min_clients=3, misses=0))
    deployed.grid.nodes[4].slow_s = 60.0
    deployed.run()
    assert [record["accepted"] for record in deployed.records] == [4] * 6
    assert set(refused(deployed)) == {"late"}
    assert deployed.grid.now > 300


def test_a_client_without_its_data_is_asked_less_and_less_often(tmp_path):
    deployed = Deployed(small_settings("fedcef", rounds=20), tmp_path, deployment=DeploymentSettings(deadline_s=50))
    deployed.grid.nodes[3].fails = 1000
    deployed.run()
    orders = [message for message in deployed.grid.nodes[3].seen if message.metadata.message_type == "train"]
    rounds = [int(message.metadata.group_id) for message in orders]
    assert rounds == [0, 0, 0, 0, 1, 2, 4, 8, 16]
    assert any("Client 3 failed in round 0" in sentence for sentence in deployed.told)


def test_what_a_client_says_is_one_line_that_no_terminal_obeys(tmp_path):
    deployed = Deployed(small_settings("fedcef", rounds=1), tmp_path)
    deployed.grid.nodes[3].fails, deployed.grid.nodes[3].says = 1, "\x1b[2J\nFinished: all is well\r" + "!" * 10_000
    deployed.run()
    (told,) = [sentence for sentence in deployed.told if "failed" in sentence]
    assert told.startswith("Client 3 failed in round 0:  [2J Finished: all is well !!")
    assert told.isprintable()
    assert len(told) < 400


def test_a_client_that_fails_is_asked_again(tmp_path):
    settings = small_settings("fedcef", rounds=3)
    deployed = Deployed(settings, tmp_path)
    deployed.grid.nodes[3].fails = 2
    deployed.run()
    assert refused(deployed) == ["client failed"] * 2
    assert equal(deployed.server.state.replica, reference(settings).replica)


def test_a_client_that_fails_always_is_done_without(tmp_path):
    deployed = Deployed(
        small_settings("fedcef", rounds=3), tmp_path, deployment=DeploymentSettings(retries=1, deadline_s=50)
    )
    deployed.grid.nodes[3].fails = 1000
    deployed.run()
    assert [record["accepted"] for record in deployed.records] == [4] * 3
    assert deployed.grid.now < 50, "nobody waits for the deadline"


def test_a_node_that_goes_is_not_asked_in_later_rounds(tmp_path):
    deployed = Deployed(small_settings("fedcef", rounds=3), tmp_path)
    deployed.grid.nodes[0].online = False
    deployed.run()
    assert [record["accepted"] for record in deployed.records] == [4] * 3
    assert deployed.grid.nodes[0].seen == []


def test_a_node_that_comes_late_joins(tmp_path):
    deployed = Deployed(
        small_settings("fedcef", rounds=6),
        tmp_path,
        clients=4,
        deployment=DeploymentSettings(patience_s=5, deadline_s=50),
    )
    rounds = iter(range(100))
    watch = deployed._watch

    def join_after_two(record):
        watch(record)
        deployed.grid.now += 10
        if next(rounds) == 1:
            deployed.grid.join(4)

    deployed._watch = join_after_two
    deployed.run()
    assert [record["accepted"] for record in deployed.records][:2] == [4, 4]
    assert deployed.records[-1]["accepted"] == 5


def test_the_server_waits_for_as_many_clients_as_it_needs(tmp_path):
    """Zhang's method needs everyone: nothing begins before, and the deadline does not help."""
    deployed = Deployed(
        small_settings("zhang", rounds=2),
        tmp_path,
        clients=4,
        deployment=DeploymentSettings(patience_s=1, deadline_s=5),
    )
    steps = iter(range(200))
    with pytest.raises(Stopped):
        deployed.loop(stopped=lambda: next(steps) > 100).run()
    assert deployed.server.round == 0
    assert "4 of 5 clients are there; waiting for the others." in deployed.told


def test_a_reply_without_bytes_is_unreadable(tmp_path):
    settings = small_settings("fedcef", rounds=1)
    deployed = Deployed(settings, tmp_path, deployment=DeploymentSettings(retries=0, deadline_s=50))
    answer = deployed.grid._answer

    def forged(node, message):
        if node.client == 2 and message.metadata.message_type == "train":
            return Message(RecordDict({"fedcef": ConfigRecord({"client": 1})}), reply_to=message)
        return answer(node, message)

    deployed.grid._answer = forged
    deployed.run()
    assert refused(deployed) == ["unreadable"]
