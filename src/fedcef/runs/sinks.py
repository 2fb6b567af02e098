"""Where the records of a run go: into memory, or into a run folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor

from fedcef.runs.folder import RunFolder, down_frame
from fedcef.runs.reader import Record
from fedcef.wire import Frame, Payload


class Sink(ABC):
    """Is told what happens in a run, round by round and in order."""

    keeps_rounds: bool = False
    """Whether down-messages and snapshots are of use here."""

    @abstractmethod
    def record(self, record: Record) -> None:
        """A round is over."""

    @abstractmethod
    def note(self, round_: int, sentence: str) -> None:
        """Something is to be told to whoever reads of the run."""

    def message(self, round_: int, down: Mapping[str, Payload]) -> str:
        """A round's down-message; returns what is to be said of it, mostly nothing."""
        return ""

    def snapshot(self, round_: int, tensors: Mapping[str, Tensor]) -> None:
        """Everything that is needed to go on after so many rounds."""
        return


class MemorySink(Sink):
    """Keeps the evaluated records of a run, and its notes."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.notes: list[str] = []

    def record(self, record: Record) -> None:
        if "objective" in record:
            self.records.append(record)

    def note(self, round_: int, sentence: str) -> None:
        self.notes.append(sentence)


class FolderSink(Sink):
    """Writes a run down in its folder, from which it can go on."""

    keeps_rounds = True

    def __init__(self, folder: RunFolder, logged: Mapping[int, Frame] | None = None) -> None:
        """`logged` are the down-messages of a run that was cut off, which it must repeat."""
        self.folder = folder
        self._logged = dict(logged or {})

    def record(self, record: Record) -> None:
        self.folder.add_record(record)

    def note(self, round_: int, sentence: str) -> None:
        self.folder.add_note(round_, sentence)

    def message(self, round_: int, down: Mapping[str, Payload]) -> str:
        frame = down_frame(down, round_)
        self.folder.add_frame(frame)
        before = self._logged.pop(round_, None)
        if before is None or down_frame(before.message, round_) == frame:
            return ""
        return (
            f"Round {round_} is not what was logged before the interruption; was the run moved to another machine or "
            "version?"
        )

    def snapshot(self, round_: int, tensors: Mapping[str, Tensor]) -> None:
        self.folder.save_snapshot(round_, tensors)
