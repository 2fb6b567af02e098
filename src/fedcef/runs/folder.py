"""A run on disk, as it is written and gone on with.

    config.toml          the settings, complete
    rounds.jsonl         one line per round: bytes so far, time, and the measures of evaluated rounds
    snapshot.bin         everything that is needed to go on: replica, server, clients, ledger; and the settings
    client_states.N.bin  the states of clients that have taken part, where they are not in the snapshot
    round_log.bin        the down-messages since that snapshot, as frames of the wire format
    model.safetensors    the trained parameters by name
    summary.json         how it ended
    facts.json           labels per client, a message's bytes by part, the checksum of a text
    notes.jsonl          what was told on the way, if anything was
    lock                 while a process works on the run

A snapshot is a checkpoint (wire/checkpoint.py), which tells whether it is whole.  It is there from the start, then
without tensors, so that a run goes on only with the settings that it began with.  What the other files hold beyond it
is cut off on resuming and computed again.  Earlier versions wrote snapshot.safetensors, which is still resumed from.

`RunReader` is for those who only read.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.runs.kinds import refuse_deployed, resume_command
from fedcef.runs.lock import locked
from fedcef.runs.model_file import encode_model, read_model
from fedcef.runs.reader import Record, RunReader, counted, flatten, record_lines
from fedcef.wire import Frame, FrameKind, WireError, encode, read_frames
from fedcef.wire.checkpoint import DamagedError, read_checkpoint, write_checkpoint

Snapshot = tuple[int, dict[str, Tensor]]
"""A round, and what was known after it by name."""

FREE = ("name", "label", "device", "snapshot_every", "cohort_chunk", "workers")
"""Settings that make no other experiment: what it is called, where and by whom it is computed, how often it is kept."""


class RunFolder:
    """The files of a run, and the only code that writes them.

    Args:
        path: where they are or will be; nothing is read or written yet.
        disk: how they are written.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path, self._disk = path, disk or Disk()
        self.config = path / "config.toml"
        self.rounds = path / "rounds.jsonl"
        self.snapshot = path / "snapshot.bin"
        self.old_snapshot = path / "snapshot.safetensors"
        self.log = path / "round_log.bin"
        self.model = path / "model.safetensors"
        self.summary = path / "summary.json"
        self.facts = path / "facts.json"
        self.notes = path / "notes.jsonl"

    # a run begins

    @classmethod
    def new(cls, path: Path, disk: Disk | None = None) -> RunFolder:
        """The place of a new run, not written yet; a folder that already holds a run is refused."""
        folder = cls(path, disk)
        folder._refuse_a_run()
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of a run that was begun."""
        folder = cls(path)
        if not folder.config.is_file():
            raise RunError(f"{path} holds no run to resume; there is no {folder.config.name} in it.")
        return folder

    def create(self, config_toml: str) -> None:
        """Begin a run on disk.  The settings come last: a folder without them holds no run."""
        self._refuse_a_run()  # another process may have begun one meanwhile
        self._settings = tomllib.loads(config_toml)
        with self._advice("choose another --out, or make room or rights for it."):
            for path in (self.rounds, self.log):
                self._disk.replace(path, b"")
            self._write_snapshot(0, {})
            self._disk.replace(self.config, config_toml.encode())

    def locked(self) -> AbstractContextManager[None]:
        """Keep all other processes from working on this run within the block."""
        return locked(self.path / "lock", busy=f"The run in {self.path} is being worked on", mode=self._disk.dir_mode)

    def _refuse_a_run(self) -> None:
        if self.config.exists():
            raise RunError(
                f"{self.path} already holds a run; go on with it by `{resume_command(self.path)}`, or choose "
                "another --out."
            )
        parts = (self.rounds, self.summary, self.model, self.old_snapshot, self.facts, self.notes)
        for part in parts:
            if part.exists() and part.stat().st_size:
                raise RunError(
                    f"{self.path} holds the {part.name} of a run that has lost its {self.config.name}; restore that "
                    "file from a copy, or choose another --out."
                )

    # a round is over

    def add_record(self, record: Record) -> None:
        """A round's line for rounds.jsonl."""
        self._add(self.rounds, json.dumps(record).encode() + b"\n")

    def add_frame(self, frame: bytes) -> None:
        """A round's down-message for the log."""
        self._add(self.log, frame)

    def add_note(self, round_: int, sentence: str) -> None:
        """A sentence for whoever watches or reports the run."""
        self._add(self.notes, json.dumps({"round": round_, "note": sentence}).encode() + b"\n")

    def save_snapshot(self, round_: int, tensors: Mapping[str, Tensor]) -> None:
        """Everything that the next round needs, by name; the log before it is done with."""
        with self._advice():
            self._disk.keep(self.rounds)  # a round before a snapshot is never computed again
            self._write_snapshot(round_, tensors)
            self.log.write_bytes(b"")  # need not be durable: resuming only compares with it
            self.old_snapshot.unlink(missing_ok=True)

    def save_model(self, tensors: Mapping[str, Tensor], round_: int) -> None:
        """The trained parameters by name."""
        with self._advice():
            self._disk.replace(self.model, encode_model(tensors, round_))

    def save_facts(self, facts: Record) -> None:
        """What only the report needs."""
        with self._advice():
            self._disk.replace(self.facts, json.dumps(facts).encode() + b"\n")

    def save_summary(self, summary: Record) -> None:
        """How the run ended.  It comes last: a run with a summary is over."""
        with self._advice():
            self._disk.replace(self.summary, json.dumps(summary, indent=2).encode() + b"\n")

    # a run goes on

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to do, so that nothing may be changed either."""
        return self.read_summary().get("status") == "finished" and self.model.exists()

    def records(self) -> list[Record]:
        """The rounds so far, as far as they are intact."""
        return RunReader(self.path).records

    def read_summary(self) -> Record:
        """How the run ended; empty if it has not."""
        reader = RunReader(self.path)
        if self.summary.exists() and not reader.summary:
            raise RunError(f"{self.summary} is damaged; remove it to finish that run again, which takes little.")
        return reader.summary

    def read_model(self) -> dict[str, Tensor]:
        """The trained parameters by name; damaged ones are refused."""
        return read_model(self.model)

    def extend(self, rounds: int) -> None:
        """Give the run more rounds.  Its end is undone first, then the record of its last round, which was an end's."""
        self._disk.remove(self.summary)
        lines, last = record_lines(self.rounds.read_bytes()), self._settings["rounds"]
        kept = [line.text for line in lines if line.entry is None or line.entry["round"] != last]
        self._settings = {**self._settings, "rounds": rounds}
        with self._advice():
            self._disk.replace(self.rounds, b"".join(kept))
            self._disk.replace(self.config, tomli_w.dumps(self._settings).encode())

    def read_snapshot(self, may_be_longer: bool = False) -> Snapshot | None:
        """What to go on from, or None for the start; settings that are not those of the snapshot are refused, but for
        more rounds where it `may_be_longer`."""
        refuse_deployed(self.path)
        if not self._settings:
            raise RunError(f"{self.config} is empty or damaged; restore it from a copy, or begin another run.")
        if not self.snapshot.exists():
            return self._read_old_snapshot() if self.old_snapshot.exists() else None
        try:
            header, tensors = read_checkpoint(self.snapshot)
            round_, begun = int(header["round"]), dict(header["settings"])
        except (DamagedError, KeyError, TypeError, ValueError) as error:
            raise self._damaged(self.snapshot, error) from None
        if may_be_longer:
            begun["rounds"] = max(begun.get("rounds", 0), self._settings.get("rounds", 0))
        if differing := changes(begun, self._settings):
            raise RunError(
                f"{self.config} was changed since the run began: {differing}.  Change it back, or begin another run "
                f"by `fedcef run {self.config} --out FOLDER`."
            )
        return (round_, tensors) if round_ else None

    def logged_frames(self) -> dict[int, Frame]:
        """The down-messages in the log, by round."""
        try:
            frames, _ = read_frames(self.log.read_bytes() if self.log.is_file() else b"")
        except WireError as error:
            raise RunError(
                f"The round log {self.log} is damaged ({str(error).rstrip('.')}); remove it to go on, and the rounds "
                "since the last snapshot are computed again without comparing them."
            ) from None
        return {frame.round: frame for frame in frames}

    def cut(self, round_: int) -> list[str]:
        """Cut off what was recorded after this round, or everything if it is 0.

        What was recorded up to it stays byte for byte, but for lines that are damaged.

        Returns:
            Sentences on records that are lost.
        """
        content = self.rounds.read_bytes() if self.rounds.is_file() else b""
        lines = record_lines(content)
        intact = [(line.entry["round"], line.text) for line in lines if line.entry is not None]
        kept = [(number, text) for number, text in intact if number <= round_] if round_ else []
        whole = b"".join(text.rstrip(b"\r\n") + b"\n" for _, text in kept)
        with self._advice():
            if whole != content or not self.rounds.exists():
                self._disk.replace(self.rounds, whole)
            self.log.write_bytes(b"")
        if not round_:
            return []
        damaged = [line.number for line in lines if line.entry is None]
        lost = sorted(set(range(round_)) - {number for number, _ in kept})  # `round_` itself can be measured again
        sentences = [f"{self.rounds} was damaged: {counted('line', damaged)} could not be read."] if damaged else []
        if lost:
            sentences.append(f"{self.rounds} has lost {counted('round', lost)}; the run goes on without.")
        return sentences

    @cached_property
    def _settings(self) -> Record:
        return RunReader(self.path).settings

    def _read_old_snapshot(self) -> Snapshot:
        try:
            with safe_open(self.old_snapshot, framework="pt") as file:
                return int(file.metadata()["round"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise self._damaged(self.old_snapshot, error) from None

    def _damaged(self, path: Path, error: Exception) -> RunError:
        reason = str(error).removeprefix(f"{path} is damaged: ").rstrip(".")
        return RunError(
            f"The snapshot {path} is damaged ({reason}); restore it from a copy, or remove it and go on, which "
            "computes the run again from its first round."
        )

    def _write_snapshot(self, round_: int, tensors: Mapping[str, Tensor]) -> None:
        write_checkpoint(self.snapshot, {"round": round_, "settings": _plain(self._settings)}, tensors, self._disk)

    def _add(self, path: Path, data: bytes) -> None:
        with self._advice():
            self._disk.add(path, data)

    @contextmanager
    def _advice(self, advice: str = "") -> Iterator[None]:
        """What to do about a disk that refuses."""
        advice = advice or f"make room or rights for it, then go on with: {resume_command(self.path)}"
        try:
            yield
        except RunError as error:
            raise RunError(f"{str(error).rstrip('.')}; {advice}") from None
        except OSError as error:
            raise RunError(f"{error.filename or self.path} cannot be written: {error.strerror}; {advice}") from None


def down_frame(message: Mapping[str, Any], round_: int) -> bytes:
    """A round's down-message as it is logged."""
    return encode(message, FrameKind.DOWN, round_)


def changes(begun: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = FREE) -> str:
    """What differs between the settings that a run began with and others, in words; "" if it is the same experiment.

    Those that are `free` may differ.
    """
    before, after = flatten(_plain(begun)), flatten(_plain(now))
    keys = [key for key in {**before, **after} if key not in free and before.get(key) != after.get(key)]
    said = [f"{key} was {before.get(key, 'not set')} and is {after.get(key, 'not set')}" for key in keys[:3]]
    return "; ".join(said) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")


def _plain(table: Mapping[str, Any]) -> Record:
    """A table of TOML as JSON can hold it: dates, and numbers that are not equal to themselves, become text."""
    result: Record = json.loads(json.dumps(table, default=str), parse_constant=str)
    return result
