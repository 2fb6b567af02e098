"""What a node keeps on its own disk between messages, for one model of one run.

    state           which of the files below count, the answer to the last order, and small arrays
    replica-*.bin   the model that the server knows this node to have
    memory-*.bin    what compression has left out so far, and not made up for yet

A client may have two memories: the one that the server is known to count on, and the one that follows it if the last
answer has arrived.  The next order says which.  Vectors are written piece by piece into files of their own, under new
names; the state, which names them, is replaced in one step, and only then are old files removed.  So a kill at any
moment leaves the last state whole.
"""

from __future__ import annotations

import re
import shutil
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from fedcef.core.disk import Disk, PrivateDisk
from fedcef.core.errors import RunError
from fedcef.flower.two_lines.messages import NOTHING
from fedcef.runs.lock import locked
from fedcef.wire.checkpoint import DamagedError, read_checkpoint, write_checkpoint

KEPT_RUNS = 4
"""Older runs than these last ones are forgotten; a node that meets one of them again begins afresh."""
GOING_ON_S = 3600.0
"""What was written since is not forgotten: many runs may be going on at the same time."""
NODE_GONE_S = 30 * 24 * 3600.0
"""A node without a number has another name, and folder, at every start; those of earlier ones go after this time."""


@dataclass(frozen=True)
class VectorFile:
    """A vector on disk, and the checksum that its bytes must have."""

    name: str
    checksum: int


@dataclass
class NodeState:
    """What the state's file says."""

    client: bytes
    layout: list[Any] = field(default_factory=list)
    up: str = ""
    version: int = -1
    digest: bytes = b""
    replica: VectorFile | None = None
    committed: bytes = NOTHING
    committed_file: VectorFile | None = None
    pending: bytes = b""
    pending_file: VectorFile | None = None
    order: bytes = b""
    answer: bytes = b""  # to that order, to be given again

    @property
    def has_memory(self) -> bool:
        """Whether something was sent in this run, so that it matters what of it has arrived."""
        return self.committed != NOTHING or bool(self.pending)

    def settle(self, counted: bytes) -> None:
        """Go on with the memory that the server counts on."""
        if counted == self.pending:
            self.committed, self.committed_file = self.pending, self.pending_file
        elif counted != self.committed:  # one from a backup: nobody knows what was sent since, so nothing is owed
            self.committed, self.committed_file = NOTHING, None
        self.pending, self.pending_file = b"", None


class NodeStore:
    """The files of one node, one run and one model."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.folder, self._disk = folder, disk or PrivateDisk()
        self._path = folder / "state"

    def load(self) -> NodeState | None:
        """The last state; None if there is none, or it is damaged.  What a failed message left behind is removed."""
        state = self._load()
        self._forget_vectors(state)
        return state

    def _load(self) -> NodeState | None:
        try:
            header, tensors = read_checkpoint(self._path)
            files: Any = {name: VectorFile(*header[name]) if header[name] else None for name in _FILES}
            named: Any = {name: bytes.fromhex(header[name]) for name in _BYTES}
            answer = tensors["answer"].numpy().tobytes()
            plain: Any = {name: header[name] for name in _PLAIN}
            return NodeState(answer=answer, **plain, **files, **named)
        except (RunError, KeyError, TypeError, ValueError):
            return None

    def save(self, state: NodeState) -> None:
        """Make a state durable, and forget the vectors that it does not name."""
        header = {
            **{name: getattr(state, name) for name in _PLAIN},
            **{name: _pair(getattr(state, name)) for name in _FILES},
            **{name: getattr(state, name).hex() for name in _BYTES},
        }
        answer = torch.frombuffer(bytearray(state.answer), dtype=torch.uint8) if state.answer else torch.empty(0).byte()
        write_checkpoint(self._path, header, {"answer": answer}, self._disk)
        self._forget_vectors(state)

    def _forget_vectors(self, state: NodeState | None) -> None:
        named = {file.name for name in _FILES if (file := getattr(state, name, None)) is not None}
        for path in self.folder.glob("*.bin"):
            if path.name not in named:
                path.unlink(missing_ok=True)

    def read(self, file: VectorFile | None, kind: np.dtype[Any], dim: int) -> NDArray[Any] | None:
        """A vector that is read as it is needed; None if there is none, or not of this length."""
        path = self.folder / (file.name if file else "")
        if file is None or not path.is_file() or path.stat().st_size != dim * kind.itemsize or not dim:
            return None
        return np.memmap(path, kind, "r", shape=(dim,))

    @contextmanager
    def writing(self, name: str) -> Iterator[VectorWriter]:
        """Write a vector piece by piece; it is durable when the block ends."""
        self.folder.mkdir(self._disk.dir_mode, parents=True, exist_ok=True)
        path = self.folder / name
        with path.open("wb") as file:
            writer = VectorWriter(name, file, self._disk.write)
            try:
                yield writer
                self._disk.sync(file.fileno())
            except OSError as error:
                raise RunError(f"{path} cannot be written: {error.strerror or error}; make room for it.") from None

    def forget_others(self, used: Collection[Path]) -> None:
        """Remove what this node kept for runs that are long over; `used` are the folders of the one going on."""
        with suppress(OSError):
            others = [path for path in self.folder.parent.iterdir() if path.is_dir() and path not in used]
            written = sorted(((path.stat().st_mtime, path) for path in others), reverse=True)
            for when, path in written[KEPT_RUNS - 1 :]:
                if time.time() - when > GOING_ON_S:
                    _removed(path)


def lock_of(folder: Path) -> Path:
    """The lock of what a node keeps for one model of one run; it lies beside that folder."""
    return folder.with_name(f"{folder.name}.lock")


def forget_nodes(own: Path) -> None:
    """Remove what nodes left beside this one's folder, if Flower named them and they were not used for long."""
    if not _NAMED_BY_FLOWER.fullmatch(own.name):
        return
    with suppress(OSError):
        for node in own.parent.iterdir():
            runs = [path for path in (node / "two-lines").glob("*") if path.is_dir()]
            last = max((path.stat().st_mtime for path in (node, *runs)), default=0.0)
            if node != own and _NAMED_BY_FLOWER.fullmatch(node.name) and time.time() - last > NODE_GONE_S:
                for path in runs:
                    _removed(path)
                shutil.rmtree(node, ignore_errors=True)


def _removed(folder: Path) -> None:
    """Remove a run's folder, unless somebody works with it."""
    with suppress(RunError), locked(lock_of(folder)):
        shutil.rmtree(folder, ignore_errors=True)


class VectorWriter:
    """Takes the pieces of a vector, one after the other."""

    def __init__(self, name: str, file: BinaryIO, write: Callable[[BinaryIO, memoryview], None]) -> None:
        self.name, self._file, self._write = name, file, write
        self.checksum = 0

    def add(self, piece: NDArray[Any]) -> None:
        """The next piece."""
        data = np.ascontiguousarray(piece).data.cast("B")
        self.checksum = zlib.crc32(data, self.checksum)
        self._write(self._file, data)


class Checked:
    """Reads a vector in order, and tells at the end whether it was what was once written."""

    def __init__(self, values: NDArray[Any] | None, file: VectorFile | None) -> None:
        self._values, self._file, self._checksum = values, file, 0

    def piece(self, start: int, stop: int) -> NDArray[Any] | None:
        """The next piece; None where there is no vector, which counts as zeros."""
        if self._values is None:
            return None
        piece = np.array(self._values[start:stop])
        self._checksum = zlib.crc32(piece.data.cast("B"), self._checksum)
        return piece

    def close(self) -> None:
        """A `DamagedError` if the disk gave other bytes than it was given."""
        if self._values is not None and self._file is not None and self._checksum != self._file.checksum:
            raise DamagedError(f"{self._file.name} is damaged: its checksum does not fit.")


_NAMED_BY_FLOWER = re.compile(r"node-\d+")
_PLAIN = ("layout", "up", "version")
_FILES = ("replica", "committed_file", "pending_file")
_BYTES = ("client", "digest", "committed", "pending", "order")


def _pair(file: VectorFile | None) -> list[Any] | None:
    return None if file is None else [file.name, file.checksum]
