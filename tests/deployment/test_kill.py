"""A real process with server and clients, really killed at moments spread over its life."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from fedcef.runs.folder import RunFolder

from .setting import replayed, small_settings


def test_kill_9(tmp_path):
    settings = small_settings("fedcef lossy", rounds=60, snapshot_every=4)
    (tmp_path / "run.toml").write_text(settings.to_toml())
    command = [sys.executable, str(Path(__file__).with_name("process.py")), str(tmp_path / "run.toml"), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    folder = RunFolder(tmp_path / "server")
    random, kills = np.random.default_rng(0), 0
    for moment in range(5):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if folder.rounds.exists() and folder.rounds.read_bytes().count(b"\n") > 10 * moment:
                time.sleep(0.05 * random.random())
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        _, errors = process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    assert kills >= 4
    subprocess.run(command, env=environment, check=True, capture_output=True)
    whole = replayed(settings, [dict.fromkeys(range(5), False)] * 60)
    problem = settings.build_problem()
    trained = load_file(folder.model)
    assert all((trained[name] == tensor).all() for name, tensor in problem.layout.unflatten(whole.replica["z"]).items())
    records = folder.records()
    assert [record["round"] for record in records] == list(range(61))
    assert {record["accepted"] for record in records[1:]} == {5}
