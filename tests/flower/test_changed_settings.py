"""What may change between a stop and a resume: more rounds, and what the server asks of its clients."""

import json
import os
import shutil
import time

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from safetensors.torch import load_file

from deployment.faulty_disk import FaultyDisk, Killed
from deployment.setting import equal
from fedcef.core.errors import ConfigError
from fedcef.deployment import Coordinator
from fedcef.deployment.changed_settings import accept_changes
from fedcef.deployment.health import health_of
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder

from .setting import reference


def test_a_run_goes_on_with_its_own_settings_only(tmp_path, served):
    _, call = served
    call(out=str(tmp_path / "run"))
    said = r"was begun with other settings: local_lr was 0.01 and is 0.5; compressor.ratio was 0.1 and is 0.2\."
    with pytest.raises(ConfigError, match=said):
        call(resume=str(tmp_path / "run"), set="local_lr=0.5 compressor.ratio=0.2")
    assert call(resume=str(tmp_path / "run"), set="deployment.deadline_s=7")["status"] == "finished"


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "stopped"])
def test_a_run_gets_more_rounds_as_if_it_had_had_them_from_the_start(tmp_path, served, finished):
    settings, call = served
    call(out=str(tmp_path / "run"), set="rounds=4")
    if not finished:
        (tmp_path / "run" / "summary.json").unlink()
    summary = call(resume=str(tmp_path / "run"))
    assert (summary["rounds"], summary["status"]) == (6, "finished")
    records = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == list(range(7))
    assert all(record["accepted"] == 5 for record in records[1:])
    assert not (tmp_path / "run" / "refused.jsonl").exists()
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert equal(model, dict(settings.build_problem().layout.unflatten(reference(settings).model())))
    with pytest.raises(ConfigError, match="has 6 rounds; it can get more, but not 5"):
        call(resume=str(tmp_path / "run"), set="rounds=5")


def test_a_kill_while_a_run_gets_more_rounds_is_no_harm(tmp_path, served):
    """It goes on with as many rounds as before, or as many as wanted."""
    settings, call = served
    call(out=str(tmp_path / "run"), set="rounds=1")
    fewer, problem, killed = load_settings(str(tmp_path / "run" / "config.toml")), settings.build_problem(()), []
    for step in range(100):
        path, disk = tmp_path / str(step), FaultyDisk()
        shutil.copytree(tmp_path / "run", path)
        disk.arm("kill", step)
        try:
            accept_changes(path, fewer, settings, problem, disk)
            break
        except Killed:
            now = load_settings(str(path / "config.toml"))
            killed.append(now.rounds)
            said = accept_changes(path, now, settings if step % 2 else now, problem)
            assert said == (
                "The run is longer now: it had 1 rounds, and has 6." if step % 2 and now.rounds == 1 else ""
            )
            assert Coordinator.recover(path, problem).round == 1
    assert set(killed) == {1, 6}


def test_the_deadline_in_force_tells_when_a_run_is_silent(tmp_path, served):
    _, call = served
    call(out=str(tmp_path / "run"))
    call(resume=str(tmp_path / "run"), set="deployment.deadline_s=500")
    (tmp_path / "run" / "summary.json").unlink()
    with RunFolder(tmp_path / "run").locked():
        for age, state in {400.0: "running", 600.0: "silent"}.items():
            for name in ("rounds.jsonl", "lock"):
                os.utime(tmp_path / "run" / name, (time.time() - age,) * 2)
            assert health_of(tmp_path / "run").state == state


def test_what_cannot_get_more_rounds_is_told(tmp_path, served):
    _, call = served
    call(out=str(tmp_path / "run"), set="rounds=2 local_schedule.name=cosine")
    with pytest.raises(ConfigError, match=r"cannot get more rounds than 2: local_schedule"):
        call(resume=str(tmp_path / "run"), set="rounds=3 local_schedule.name=cosine")
