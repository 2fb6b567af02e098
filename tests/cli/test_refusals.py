"""What the system refuses (room, rights, a file's size) is one sentence and exit code 2, whichever command meets it."""

import errno
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedcef import report
from fedcef.core.disk import Disk

TINY = ["--set", "rounds=3", "--set", "num_clients=3", "--set", "model.name=softmax"]


@contextmanager
def largest_file(size):
    """As by `ulimit -f`."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_limit_on_file_sizes(fedcef):
    with largest_file(20_000):
        result = fedcef("run", "demo", *TINY, "--out", "mine")
    assert result.code == 2
    assert "cannot be written: File too large" in result.sentence
    assert "fedcef run --resume mine" in result.sentence
    assert fedcef("run", "--resume", "mine").code == 0
    with largest_file(20_000):
        result = fedcef("plot", "mine", "--out", "drawn")
    assert result.code == 2
    assert "File too large" in result.sentence


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder in which not even root can write")
def test_a_folder_that_cannot_be_written(fedcef):
    assert fedcef("run", "demo", *TINY, "--out", "mine").code == 0
    result = fedcef("plot", "mine", "--out", "/sys/kernel")
    assert result.code == 2
    assert "/sys/kernel/figure.png" in result.sentence
    assert fedcef("report", "mine", "--out", "/sys/kernel/report.html").code == 2
    assert fedcef("export", "mine", "--out", "/sys/kernel/model").code == 2
    assert fedcef("run", "demo", *TINY, "--out", "/sys/kernel/run").code == 2


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "figure.png cannot be written: No space left on device; make room on its disk."),
        (errno.EDQUOT, "make room in your quota."),
        (errno.EFBIG, "figure.png cannot be written: File too large; raise the limit on a file's size (ulimit -f)."),
        (errno.EROFS, "figure.png cannot be written: Read-only file system; choose another folder."),
        (errno.EIO, "figure.png cannot be read or written: Input/output error; check its disk."),
        (errno.EPERM, "figure.png cannot be opened: Operation not permitted; change its permissions,"),
    ],
)
def test_any_command_tells_it(fedcef, monkeypatch, number, says):
    def refuse(*_):
        raise OSError(number, os.strerror(number), "figure.png")

    assert fedcef("run", "demo", *TINY, "--out", "mine").code == 0
    monkeypatch.setattr(report, "write_report", refuse)
    result = fedcef("plot", "mine")
    assert result.code == 2
    assert says in result.sentence


def test_an_error_of_ours_keeps_its_traceback(fedcef, monkeypatch):
    def fails(*_):
        raise FileNotFoundError(errno.ENOENT, "No such file", "forgotten")

    monkeypatch.setattr(report, "find_runs", fails)
    monkeypatch.setattr(sys, "argv", ["fedcef", "plot", "mine"])
    with pytest.raises(FileNotFoundError):
        fedcef("plot", "mine")


def test_a_full_disk_leaves_a_run_to_go_on_with(fedcef, monkeypatch):
    whole, lines = Disk.write, []

    def fails(self, file, data):
        if file.name.endswith("rounds.jsonl"):
            lines.append(data)
        if len(lines) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(self, file, data)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "write", fails)
        result = fedcef("run", "demo", *TINY, "--out", "mine")
    assert result.code == 2
    assert "mine/rounds.jsonl cannot be written: No space left on device" in result.sentence
    assert "make room or rights for it, then go on with: fedcef run --resume mine" in result.sentence
    assert fedcef("run", "--resume", "mine").code == 0
