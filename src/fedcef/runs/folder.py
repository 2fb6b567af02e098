"""A run on disk.

    config.toml          the settings, complete
    rounds.jsonl         one line per round: bytes so far, time, and the measures of evaluated rounds
    snapshot.safetensors everything that is needed to go on: replica, server, clients, ledger
    round_log.bin        the down-messages since that snapshot, as frames of the wire format
    model.safetensors    the trained parameters by name
    summary.json         how it ended
    facts.json           what only the report needs: labels per client, and a message's bytes by part
    notes.jsonl          what was told on the way, if anything was

A snapshot is written beside the old one and then takes its name, so that it is whole at any moment; what the
other files hold beyond it is cut off on resuming and computed again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedcef.core.errors import RunError
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Frame, FrameKind, WireError, encode, read_frames

Record = dict[str, Any]


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.rounds = path / "rounds.jsonl"
        self.snapshot = path / "snapshot.safetensors"
        self.log = path / "round_log.bin"
        self.model = path / "model.safetensors"
        self.summary = path / "summary.json"

    @classmethod
    def new(cls, path: Path) -> RunFolder:
        """The place of a new run, not written yet; a folder that already holds a run is refused."""
        folder = cls(path)
        if folder.config.exists():
            raise RunError(
                f"{path} already holds a run; go on with it by `fedcef run --resume {path}`, or choose another --out."
            )
        return folder

    def create(self, config_toml: str) -> None:
        """Begin a run on disk.  The settings come last: a folder without them holds no run."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.rounds.write_bytes(b"")
            self.log.write_bytes(b"")
            write_atomically(self.config, lambda part: part.write_text(config_toml, "utf-8"))
        except OSError as error:
            raise RunError(
                f"The run folder {self.path} cannot be written: {error.strerror}; choose another --out."
            ) from None

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        folder = cls(path)
        if not folder.config.is_file():
            raise RunError(f"{path} holds no run to resume; there is no {folder.config.name} in it.")
        return folder

    def add_record(self, record: Record) -> None:
        with self.rounds.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[Record]:
        """The rounds so far; a last line that a kill cut short is no record."""
        records = []
        for line in self.rounds.read_text("utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def add_frame(self, frame: bytes) -> None:
        with self.log.open("ab") as file:
            file.write(frame)

    def logged_frames(self) -> dict[int, Frame]:
        """The down-messages in the log, by round."""
        try:
            frames, _ = read_frames(self.log.read_bytes())
        except WireError as error:
            raise RunError(f"The round log {self.log} is damaged: {error}") from None
        return {frame.round: frame for frame in frames}

    def save_snapshot(self, round_: int, tensors: Mapping[str, Tensor]) -> None:
        """Everything that the next round needs, named as by `snapshot_tensors`; the log before it is done with."""
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_atomically(self.snapshot, lambda part: save_file(whole, part, {"round": str(round_)}))
        write_atomically(self.log, lambda part: part.write_bytes(b""))

    def restore(self, simulation: Simulation) -> None:
        """Put the simulation where the snapshot was taken; without one it stays at the start."""
        if self.snapshot.exists():
            try:
                with safe_open(self.snapshot, framework="pt") as file:
                    round_ = int(file.metadata()["round"])
                    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            except (SafetensorError, KeyError, ValueError) as error:
                raise RunError(f"The snapshot {self.snapshot} is damaged: {error}.") from None
            _put_back(simulation, round_, tensors, self.snapshot)
        kept = [record for record in self.records() if record["round"] <= simulation.round]
        if simulation.round == 0:
            kept = []
        lines = "".join(json.dumps(record) + "\n" for record in kept)
        write_atomically(self.rounds, lambda part: part.write_text(lines, "utf-8"))
        write_atomically(self.log, lambda part: part.write_bytes(b""))

    def save_model(self, simulation: Simulation) -> None:
        named = simulation.problem.layout.unflatten(simulation.model().cpu())
        tensors = {name: tensor.clone() for name, tensor in named.items()}
        write_atomically(self.model, lambda part: save_file(tensors, part, {"round": str(simulation.round)}))

    def save_summary(self, summary: Record) -> None:
        text = json.dumps(summary, indent=2) + "\n"
        write_atomically(self.summary, lambda part: part.write_text(text, "utf-8"))


def down_frame(message: Mapping[str, Any], round_: int) -> bytes:
    """A round's down-message as it is logged."""
    return encode(message, FrameKind.DOWN, round_)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside the file, make it durable, then take its name."""
    part = path.with_name(path.name + ".part")
    write(part)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def snapshot_tensors(simulation: Simulation) -> dict[str, Tensor]:
    """What a snapshot holds, under the names that it has there."""
    return {f"{part}/{name}": tensor for part, state in simulation.state().items() for name, tensor in state.items()}


def _put_back(simulation: Simulation, round_: int, tensors: dict[str, Tensor], path: Path) -> None:
    saved: dict[str, dict[str, Tensor]] = {}
    for part, state in simulation.state().items():
        for name, vector in state.items():
            tensor = tensors.get(f"{part}/{name}")
            if tensor is None or tensor.shape != vector.shape or tensor.dtype != vector.dtype:
                raise RunError(f"The snapshot {path} does not fit the run's config.toml: {part}/{name} differs.")
        saved[part] = {name: tensors[f"{part}/{name}"] for name in state}
    simulation.restore(round_, saved)
