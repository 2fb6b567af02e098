"""A process that waits with everything imported: it does what Flower's would, and is not missed when it is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedcef.flower import warm

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

BESIDE = """
import os, sys
from pathlib import Path
from fedcef.flower.warm import opened, served

seen = []

def work():
    import numpy
    seen.append(sys.argv[1])
    print(*seen, Path.cwd().name, os.environ.get("MARK"), numpy.random.random(), flush=True)
    sys.exit(int(sys.argv[2]))

folder, program, parent = Path(sys.argv[1]), sys.argv[2], os.getppid()
waiting = opened(folder, program)
print("opened", flush=True)
sys.exit(served(waiting, folder, ["numpy", "no_such_module"], parent, work))
"""


def call(folder, *arguments, **options):
    return subprocess.run(
        [folder / warm.PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.fixture
def beside(tmp_path):
    """A waiting process, and a program to fall back on that says its arguments."""
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho as ever "$@"\nexit 5\n')
    program.chmod(0o700)
    (tmp_path / "warm").mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", BESIDE, str(tmp_path / "warm"), str(program)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "opened\n"
    yield tmp_path / "warm", process
    process.kill()
    process.communicate()


def test_a_call_has_its_own_arguments_folder_environment_and_status(beside, tmp_path):
    """Early calls wait; nothing of one is seen by the next, and their chances differ."""
    folder, process = beside
    places = [tmp_path / name for name in ("one", "two")]
    found = []
    for number, place in enumerate(places):
        place.mkdir()
        found.append(call(folder, place.name, str(number + 3), cwd=place, env={"MARK": f"mark-{number}"}))
    assert [one.returncode for one in found] == [3, 4]
    words = [one.stdout.split() for one in found]
    assert [line[:-1] for line in words] == [["one", "one", "mark-0"], ["two", "two", "mark-1"]]
    assert words[0][-1] != words[1][-1]
    process.kill()
    process.wait()
    again = call(folder, "three")
    assert (again.stdout, again.returncode) == ("as ever three\n", 5)


def test_a_command_that_is_not_there_is_refused(capsys, monkeypatch, tmp_path):
    assert warm.main([]) == 2
    assert "Name the command" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert warm.main([sys.executable]) == 2
    assert "no flwr-clientapp" in capsys.readouterr().err


def test_it_ends_with_the_command_and_leaves_nothing(tmp_path):
    """The command sees our program first, and is the process that was started."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    source = "import sys; from fedcef.flower import warm; warm.IMPORTED = (); sys.exit(warm.main(sys.argv[1:]))"
    command = ["sh", "-c", "echo $$; command -v flwr-clientapp; exit 7"]
    process = subprocess.Popen([sys.executable, "-c", source, *command], env=environment, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=60)
    number, program = out.decode().split()
    assert (process.returncode, int(number)) == (7, process.pid)
    assert Path(program).parent.parent == tmp_path
    assert not list(tmp_path.iterdir())  # its output is closed when both have ended
