"""Files that survive a kill, on every system, and a disk that refuses in one sentence."""

import errno
import os

import pytest

from fedcef.core.disk import Disk, PrivateDisk
from fedcef.core.errors import RunError


@pytest.fixture
def steps(monkeypatch):
    """What is done to the disk, in order."""
    done = []
    monkeypatch.setattr("os.fsync", lambda descriptor: done.append("sync"))
    monkeypatch.setattr(Disk, "rename", lambda self, part, path: (done.append("rename"), part.replace(path)))
    return done


def test_the_disk_really_syncs(tmp_path, steps):
    """The file before its rename, and the folder after."""
    Disk().replace(tmp_path / "file", b"x")
    assert steps == ["sync", "rename", "sync"]
    steps.clear()
    Disk().append(tmp_path / "file", b"y", 1)
    assert steps == ["sync"]
    assert (tmp_path / "file").read_bytes() == b"xy"
    steps.clear()
    Disk().add(tmp_path / "file", b"z")
    assert steps == []
    Disk().keep(tmp_path / "file")
    assert steps == ["sync"]


def test_what_is_synced_has_left_the_buffers(tmp_path, monkeypatch):
    """A sync of a file whose bytes are still in this process makes nothing durable."""
    sizes = []
    monkeypatch.setattr(Disk, "sync", lambda self, descriptor: sizes.append(os.fstat(descriptor).st_size))
    Disk().replace(tmp_path / "file", b"12345")
    Disk().append(tmp_path / "file", b"678", 5)
    assert sizes[0] == 5
    assert sizes[2] == 8


def test_what_is_appended_ends_the_file(tmp_path):
    """Also where an interrupted write has left more than comes now."""
    (tmp_path / "file").write_bytes(b"whole, and then the rest of something long")
    Disk().append(tmp_path / "file", b"!", 5)
    assert (tmp_path / "file").read_bytes() == b"whole!"


def test_files_are_removed_for_good_and_names_are_kept(tmp_path, steps):
    (tmp_path / "file").write_bytes(b"x")
    Disk().remove(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    assert steps == ["sync"]
    Disk().remove(tmp_path / "file")  # which is not there
    steps.clear()
    Disk().keep_names(tmp_path)
    assert steps == ["sync"]
    Disk().keep_names(tmp_path / "nowhere")
    assert steps == ["sync"]


def test_folders_are_closed_again(tmp_path, monkeypatch):
    opened, closed = [], []
    real_open, real_close = os.open, os.close
    monkeypatch.setattr("os.open", lambda *given: (opened.append(real_open(*given)), opened[-1])[1])
    monkeypatch.setattr("os.close", lambda descriptor: (closed.append(descriptor), real_close(descriptor)))
    Disk().keep_names(tmp_path)
    assert opened == closed != []


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
@pytest.mark.parametrize(("disk", "file", "folder"), [(Disk, 0o666, 0o777), (PrivateDisk, 0o600, 0o700)])
def test_rights(tmp_path, disk, file, folder):
    """Of new files and folders, where the umask takes none away; a part that a kill left with others is not used."""
    before = os.umask(0)
    try:
        path = tmp_path / "new" / "folder" / "file"
        disk().replace(path, b"x")
        (path.parent / "again.part").write_bytes(b"left")
        (path.parent / "again.part").chmod(0o640)
        disk().replace(path.with_name("again"), b"x")
        disk().replace_by(path.with_name("by"), lambda part: part.write_bytes(b"x"))
        disk().add(path.with_name("added"), b"x")
    finally:
        os.umask(before)
    assert {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == dict.fromkeys(
        ("file", "again", "by", "added"), file
    )
    assert path.parent.stat().st_mode & 0o777 == folder


def test_an_error_before_there_is_a_part_is_told_as_it_is(tmp_path):
    def fail(part):
        raise ValueError("not finite")

    with pytest.raises(ValueError, match="not finite"):
        Disk().replace_by(tmp_path / "file", fail)


def test_a_library_may_write_the_file_itself(tmp_path, steps):
    path = tmp_path / "new folder" / "file"
    Disk().replace_by(path, lambda part: part.write_bytes(b"x"))
    assert steps == ["sync", "rename", "sync"]
    assert path.read_bytes() == b"x"
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_windows(tmp_path, monkeypatch):
    """There a folder cannot be opened, and what is open for reading only cannot be synced."""
    real_open, real_sync = os.open, os.fsync

    def open_no_folder(path, *given, **named):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real_open(path, *given, **named)

    def sync_what_is_writable(descriptor):
        os.write(descriptor, b"")  # fails where the file is open for reading only
        real_sync(descriptor)

    disk = Disk()
    monkeypatch.setattr("os.open", open_no_folder)
    monkeypatch.setattr("os.fsync", sync_what_is_writable)
    monkeypatch.setattr("fedcef.core.disk._WINDOWS", True)
    disk.replace(tmp_path / "a", b"1")
    disk.replace_by(tmp_path / "b", lambda part: part.write_bytes(b"2"))
    disk.append(tmp_path / "a", b"3", 1)
    disk.add(tmp_path / "a", b"4")
    disk.keep(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes() == b"1342"


class Full(Disk):
    """No room for anything but the first byte."""

    def write(self, file, data):
        super().write(file, data[:1])
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "write",
    [
        lambda disk, path: disk.replace(path, b"new"),
        lambda disk, path: disk.append(path, b"new", 3),
        lambda disk, path: disk.add(path, b"new"),
    ],
    ids=["replace", "append", "add"],
)
def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(tmp_path, write):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RunError, match="file cannot be written: No space left on device; what it held before"):
        write(Full(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("not finite")])
def test_a_library_that_fails_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(part):
        part.write_bytes(b"ne")
        raise error

    with pytest.raises(RunError if isinstance(error, OSError) else ValueError):
        Disk().replace_by(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_cannot_be_appended_to(tmp_path):
    with pytest.raises(RunError, match="gone cannot be written: No such file"):
        Disk().append(tmp_path / "gone", b"x", 0)
    with pytest.raises(RunError, match=r"gone cannot be written: No such file.* may be lost"):
        Disk().keep(tmp_path / "gone")
