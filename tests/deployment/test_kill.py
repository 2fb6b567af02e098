"""A real process with server and clients, really killed at moments spread over its life."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from fedcef.runs.folder import RunFolder

from .setting import replayed, small_settings

ROUNDS, KILLS = 40, 5


def test_kill_9(tmp_path):
    settings = small_settings("fedcef lossy", rounds=ROUNDS, snapshot_every=4)
    (tmp_path / "run.toml").write_text(settings.to_toml())
    command = [sys.executable, str(Path(__file__).with_name("process.py")), str(tmp_path / "run.toml"), str(tmp_path)]
    folder = RunFolder(tmp_path / "server")
    random, codes = np.random.default_rng(0), []
    with subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:

        def start():
            print("start", file=starter.stdin, flush=True)
            return int(starter.stdout.readline())

        for moment in range(KILLS):
            process, deadline = start(), time.monotonic() + 60
            while rounds_in(folder) <= ROUNDS // (KILLS + 1) * moment and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.05 * random.random())
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            codes.append(int(starter.stdout.readline()))
        start()
        assert int(starter.stdout.readline()) == 0
        starter.stdin.close()
    assert set(codes) <= {0, -signal.SIGKILL}
    assert codes.count(-signal.SIGKILL) >= KILLS - 1
    whole = replayed(settings, [dict.fromkeys(range(5), False)] * ROUNDS)
    problem = settings.build_problem()
    trained = load_file(folder.model)
    assert all((trained[name] == tensor).all() for name, tensor in problem.layout.unflatten(whole.replica["z"]).items())
    records = folder.records()
    assert [record["round"] for record in records] == list(range(ROUNDS + 1))
    assert {record["accepted"] for record in records[1:]} == {5}


def rounds_in(folder):
    return folder.rounds.read_bytes().count(b"\n") if folder.rounds.exists() else 0
