"""One process at a time, and a killed one blocks nobody."""

import os
import signal
import subprocess
import sys
from threading import Thread

import pytest

from fedcef.core.errors import RunError
from fedcef.runs.lock import locked

HOLD = "import sys, time; from pathlib import Path; from fedcef.runs.lock import locked\n"
HOLD += "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


def test_the_second_is_told_who_is_first(tmp_path):
    with locked(tmp_path / "a" / "lock", busy="The run is being worked on"):
        with (
            pytest.raises(
                RunError, match=f"The run is being worked on by process {os.getpid()}; wait until it has ended"
            ),
            locked(tmp_path / "a" / "lock", busy="The run is being worked on"),
        ):
            pytest.fail("held twice")
        assert (tmp_path / "a" / "lock").exists()  # the refused one removes nothing
    assert not list((tmp_path / "a").iterdir())
    with locked(tmp_path / "a" / "lock"):
        pass


def test_a_lock_is_left_when_the_block_fails(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "lock"):
        raise KeyError
    with locked(tmp_path / "lock"):
        pass


def test_waiting_ones_take_turns(tmp_path):
    inside, seen = [], []

    def work():
        for _ in range(20):
            with locked(tmp_path / "lock", wait=True):
                inside.append(1)
                seen.append(len(inside))
                inside.pop()

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 60


def test_a_killed_process_lets_go(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(RunError, match=f"by process {process.pid};"), locked(tmp_path / "lock"):
        pytest.fail("held twice")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "lock").read_text() == str(process.pid)
    with locked(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    path = tmp_path / "file" / "lock"
    path.parent.touch()
    with pytest.raises(RunError, match="file/lock cannot be written: File exists; choose"), locked(path):
        pass
