"""What operators meet: second servers, older copies, full disks, lost SuperLinks, wrong numbers."""

import errno
import json
import logging
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from flwr.app.exception import AppExitException
from flwr.supercore.run import RunNotRunningException
from flwr.superlink.grid.http_grid import HttpGrid
from safetensors.torch import load_file

from deployment.setting import equal, small_settings
from fedcef.core.disk import PrivateDisk
from fedcef.core.errors import ConfigError, RunError
from fedcef.deployment import DeploymentSettings
from fedcef.deployment.going_back import go_back
from fedcef.deployment.health import health_of
from fedcef.deployment.keys import key_name
from fedcef.flower import run_server, server_app
from fedcef.flower.client_app import app as client_app
from fedcef.flower.run_server import LOST_S, _losing_the_superlink
from fedcef.runs.folder import RunFolder

from .in_process import InProcessGrid
from .setting import Deployed, reference


def test_one_server_at_a_time_works_on_a_run(tmp_path, served):
    _, call = served
    call(out=str(tmp_path / "run"))
    with RunFolder(tmp_path / "run").locked(), pytest.raises(RunError, match="is being worked on by process"):
        call(resume=str(tmp_path / "run"))


def test_a_second_server_is_refused_while_the_first_lives(tmp_path, served, monkeypatch):
    """Whether it would go on with the run or begin one there; the first ends as if it had been alone."""
    settings, call = served
    pull, said = InProcessGrid.pull_messages, []

    def start_others(self, ids):
        if not said:
            said.append("")
            for how in ({"resume": str(tmp_path / "run")}, {"out": str(tmp_path / "run")}):
                with pytest.raises(RunError) as refused:
                    call(**how)
                said.append(str(refused.value))
        return pull(self, ids)

    monkeypatch.setattr(InProcessGrid, "pull_messages", start_others)
    call(out=str(tmp_path / "run"))
    assert "is being worked on by process" in said[1]
    assert "already holds a run; go on with it by `flwr run" in said[2]
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert equal(model, dict(settings.build_problem().layout.unflatten(reference(settings).model())))


def test_flower_logs_the_sentence_without_a_traceback(tmp_path, caplog):
    """As it does it with whatever its ServerApp raises."""
    grid = InProcessGrid(client_app, {"experiment": "nothing"}, state=tmp_path, clients=0)
    logger = logging.getLogger("flwr")
    before = list(logger.filters)
    try:
        with pytest.raises(AppExitException) as ended:
            server_app.main(grid, type("Context", (), {"run_config": grid.run_config})())
        logger.error("%s raised an exception", "ServerApp", exc_info=ended.value)
        logger.error("%s raised an exception", "ServerApp", exc_info=ValueError("of somebody else"))
    finally:
        logger.filters[:] = before
    ours, theirs = caplog.records
    assert ours.getMessage().startswith("The ServerApp has ended: There is no experiment 'nothing'")
    assert ours.exc_info is None
    assert theirs.exc_info
    assert not 0 <= ended.value.exit_code < 100  # which would be a success


def test_a_server_without_its_superlink_ends_and_says_how_to_go_on(tmp_path, served, monkeypatch):
    settings, call = served
    pulled = iter(range(100))
    pull = InProcessGrid.pull_messages
    for number, (error, said) in enumerate(
        [
            (httpx.ConnectError("refused"), "The SuperLink has not answered for more than 30 s"),
            (RunNotRunningException(), "For the SuperLink this run is over"),
        ]
    ):
        path = tmp_path / str(number)

        def gone(self, ids, error=error):
            if next(pulled) % 5 == 4:
                raise error
            return pull(self, ids)

        monkeypatch.setattr(InProcessGrid, "pull_messages", gone)
        with pytest.raises(RunError, match=f"{said}.*resume=.{path}"):
            call(out=str(path))
        monkeypatch.setattr(InProcessGrid, "pull_messages", pull)
        assert call(resume=str(path))["status"] == "finished"
        model = load_file(path / "model.safetensors")
        assert equal(model, dict(settings.build_problem().layout.unflatten(reference(settings).model())))


@pytest.mark.parametrize(
    ("orphaned", "ended", "how", "said"),
    [
        (True, RunError, "failed", "The SuperLink of this run has ended"),
        (False, KeyboardInterrupt, "stopped", "Stopped after 0 rounds, which are safe"),
    ],
)
def test_an_interrupt_because_the_superlink_was_killed_is_no_stop(
    tmp_path, served, monkeypatch, orphaned, ended, how, said
):
    """Flower sends SIGINT for both; its process is orphaned in one of them.  The folder keeps the sentence."""
    _, call = served
    monkeypatch.setenv("FEDCEF_ON_END", f'sh -c \'printf "%s|%s" "$1" "$3" > {tmp_path}/end\' hook')
    parents = iter([1000, 1 if orphaned else 1000])
    monkeypatch.setattr(run_server.os, "getppid", lambda: next(parents))
    monkeypatch.setattr(InProcessGrid, "pull_messages", lambda self, ids: signal.raise_signal(signal.SIGINT))
    with pytest.raises(ended):
        call(out=str(tmp_path / "run"))
    told = (tmp_path / "end").read_text()
    assert told.startswith(f"{how}|{said}")
    assert told.endswith(f"Go on with the same command and --run-config 'resume=\"{tmp_path / 'run'}\"'.")
    health = health_of(tmp_path / "run")
    assert health.state == "stopped"
    assert health.sentence.endswith(told.removeprefix(f"{how}|"))
    assert (tmp_path / "run" / "notes.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_last_words_of_a_server_are_not_those_of_the_next(tmp_path, served, monkeypatch):
    _, call = served

    def broken(self, ids):
        raise RunError("This is wrong.")

    monkeypatch.setattr(InProcessGrid, "pull_messages", broken)
    with pytest.raises(RunError):
        call(out=str(tmp_path / "run"))
    assert "This is wrong." in health_of(tmp_path / "run").sentence
    lock = tmp_path / "run" / "lock"
    lock.touch()  # as one leaves it that was killed
    os.utime(lock, (time.time() + 1, time.time() + 1))
    assert "This is wrong." not in health_of(tmp_path / "run").sentence


def test_flower_s_own_patience_is_bounded():
    """By an attribute of its grid, which must be there."""
    grid = HttpGrid("127.0.0.1:1", insecure=True, token="none")
    with _losing_the_superlink(grid, SimpleNamespace(state=SimpleNamespace(folder=RunFolder(Path("run"))))):
        assert grid._retry_invoker.max_time == LOST_S


def test_the_end_calls_a_command_and_tells_programs(tmp_path, served, monkeypatch, capsys):
    _, call = served
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\nprintf "%s|%s|%s\\n" "$1" "$2" "$3" >> {tmp_path}/ends\n')
    hook.chmod(0o700)
    monkeypatch.setenv("FEDCEF_ON_END", str(hook))
    monkeypatch.setenv("FEDCEF_LOG", "json")
    call(out=str(tmp_path / "run"))
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in (printed.out + printed.err).splitlines()]
    assert [line["round"] for line in lines if line["kind"] == "round"] == [1, 2, 3, 4, 5, 6]
    assert [line["status"] for line in lines if line["kind"] == "end"] == ["finished"]
    with pytest.raises(ConfigError):
        call(resume=str(tmp_path / "run"), set="local_lr=0.5")
    finished, refused = (tmp_path / "ends").read_text().splitlines()
    assert finished == f"finished|{tmp_path / 'run'}|"
    assert refused.startswith(f"refused|{tmp_path / 'run'}|The run in")


def test_the_end_is_also_told_when_nobody_foresaw_it(tmp_path, served, monkeypatch):
    _, call = served
    monkeypatch.setenv("FEDCEF_ON_END", f'sh -c \'printf "%s|%s" "$1" "$3" > {tmp_path}/end\' hook')

    def broken(self, ids):
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(InProcessGrid, "pull_messages", broken)
    with pytest.raises(ValueError, match="foresaw"):
        call(out=str(tmp_path / "run"))
    assert (tmp_path / "end").read_text() == "failed|ValueError: nobody foresaw this"


def test_a_full_disk_stops_the_server_and_says_how_to_go_on(tmp_path, served, monkeypatch):
    settings, call = served
    write = PrivateDisk.write

    def full(self, file, data):
        if file.name.endswith("round_log.bin") and data:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, file, data)

    monkeypatch.setattr(PrivateDisk, "write", full)
    said = rf"round_log.bin cannot be written: No space left on device.*Mend that\.  Go on .*resume=.{tmp_path / 'run'}"
    with pytest.raises(RunError, match=said):
        call(out=str(tmp_path / "run"))
    monkeypatch.setattr(PrivateDisk, "write", write)
    assert call(resume=str(tmp_path / "run"))["status"] == "finished"
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert equal(model, dict(settings.build_problem().layout.unflatten(reference(settings).model())))


def test_a_server_from_an_older_copy_stops_and_says_what_to_do(tmp_path):
    settings = small_settings("fedcef", rounds=6)
    first = Deployed(settings, tmp_path)
    rounds = iter(range(100))
    watch = first._watch

    def copy_after_two(record):
        watch(record)
        if next(rounds) == 1:
            shutil.copytree(tmp_path / "server", tmp_path / "copy")

    first._watch = copy_after_two
    first.run()
    shutil.rmtree(tmp_path / "server")
    (tmp_path / "copy").rename(tmp_path / "server")
    older = Deployed(settings, tmp_path, resume=True)
    with pytest.raises(RunError, match=r"Clients have seen later rounds .*Round 2 is over.*deployment recover"):
        older.run()
    assert go_back(tmp_path / "server") == 2
    again = Deployed(settings, tmp_path, resume=True).run()
    assert [record["round"] for record in again.records] == [3, 4, 5, 6]
    assert [record["accepted"] for record in again.records] == [5] * 4


def test_what_all_clients_refuse_for_one_reason_stops_the_server(tmp_path):
    deployed = Deployed(small_settings("fedcef", rounds=3), tmp_path)
    for node in deployed.grid.nodes:
        node.node_config["set"] = "local_lr=0.5"
    with pytest.raises(RunError, match=r"refuse it for one reason: The server's settings are not this client's"):
        deployed.run()
    assert len(deployed.grid.nodes[0].seen) == 1 + 4  # who it is, and the order with three retries


def test_a_client_that_refuses_alone_stops_nobody(tmp_path):
    deployed = Deployed(small_settings("fedcef", rounds=3), tmp_path)
    deployed.grid.nodes[2].node_config["set"] = "local_lr=0.5"
    deployed.run()
    assert [record["accepted"] for record in deployed.records] == [4] * 3


def test_a_number_that_was_corrected_is_asked_for_again(tmp_path):
    """A node with a key keeps its id when it is started again, here with the number that it should have had."""
    settings = small_settings("fedcef", rounds=4)
    deployment = DeploymentSettings(deadline_s=50, identity="key", patience_s=200)
    deployed = Deployed(settings, tmp_path, clients=4, deployment=deployment)
    node = deployed.grid.join(0, node_id=2000, key=b"key of 4")  # somebody else's number
    waits = iter(range(100_000))

    def stopped():
        if next(waits) == 20:
            node.node_config["partition-id"] = 4
        return False

    deployed.summary = deployed.loop(stopped).run()
    assert sum("is refused" in sentence for sentence in deployed.told) == 1
    assert [record["accepted"] for record in deployed.records] == [5] * 4


def test_a_key_of_the_settings_gets_its_number_though_another_claimed_it_first(tmp_path):
    settings = small_settings("fedcef", rounds=2)
    keys = tuple(key_name(f"key of {client}".encode()) for client in range(5))
    impostor = key_name(b"impostor")
    first = Deployed(settings, tmp_path, deployment=DeploymentSettings(deadline_s=50, identity="key"))
    first.server.enroll(impostor, 2)
    bound = DeploymentSettings(deadline_s=50, identity="key", keys=keys)
    again = Deployed(settings, tmp_path, deployment=bound, resume=True).run()
    assert [record["accepted"] for record in again.records] == [5, 5]
    assert again.server.state.roster.number(impostor) is None
