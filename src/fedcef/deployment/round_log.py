"""The round log: one down-message per round, on the disk before anything that depends on it is sent.

The replica after round t is a fold of `advance` over it.  Memory holds no more of it than is ever sent, a suffix no
longer than the whole replica; the file also reaches back to the server's own last snapshot.
"""

from __future__ import annotations

from pathlib import Path

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.wire import WireError, head_of, split


class RoundLog:
    """The log's file, and its last entries in memory."""

    def __init__(self, path: Path, disk: Disk, start: int = 0) -> None:
        """`start` is the round of the server's snapshot: where the log would begin if it is empty."""
        self._path, self._disk = path, disk
        try:
            frames, self._size = split(path.read_bytes())
            rounds = [head_of(frame)[1] for frame in frames]
        except (WireError, OSError) as error:
            raise RunError(f"The round log {path} is damaged: {error}") from None
        self.first = rounds[0] if rounds else start
        if rounds != list(range(self.first, self.first + len(rounds))) or self.first > start:
            raise RunError(f"The round log {path} has rounds {rounds[:1]} to {rounds[-1:]}, and not all since {start}.")
        self._frames = [bytes(frame) for frame in frames]
        if self.end < start:
            raise RunError(f"The round log {path} ends with round {self.end}, before the snapshot of round {start}.")

    @property
    def end(self) -> int:
        """How many rounds are over."""
        return self.first + len(self._frames)

    def append(self, frame: bytes) -> None:
        """Log the next round; when this returns, the round cannot be lost."""
        self._disk.append(self._path, frame, self._size)
        self._size += len(frame)
        self._frames.append(frame)

    def __getitem__(self, round_: int) -> bytes:
        """The entry of a round."""
        return self._frames[round_ - self.first]

    def since(self, round_: int) -> tuple[bytes, ...] | None:
        """The entries that a replica of this round has not seen; None if the log does not reach back that far."""
        return tuple(self._frames[round_ - self.first :]) if self.first <= round_ <= self.end else None

    def forget(self, longer_than: int) -> None:
        """Keep in memory what may be sent: the last entry, and those before it while they are no longer than that.

        The file has the others until `cut`.
        """
        first, total = self.end, 0
        while first > self.first and (first == self.end or total + len(self[first - 1]) <= longer_than):
            first -= 1
            total += len(self[first])
        self._frames, self.first = self._frames[first - self.first :], first

    def cut(self) -> None:
        """Leave in the file what is in memory: a snapshot of the server's has all that came before."""
        if (size := sum(map(len, self._frames))) < self._size:
            self._disk.replace(self._path, b"".join(self._frames))
            self._size = size
