"""Synthetic run folders, as `fedcef run` writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MakeRun = Callable[..., Path]

CONFIG = """\
label = {label}
name = "test"
rounds = {planned}
seed = {seed}

[algorithm]
name = "{algorithm}"
downlink = "{downlink}"
local_lr = {local_lr}

[data]
name = "{dataset}"
"""


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """make_run(name, **options) -> the run's folder."""

    def make(
        name: str,
        label: str = "FedCEF",
        seed: int = 0,
        up: int = 10_000,
        rounds: int = 20,
        planned: int = 20,
        status: str | None = "finished",
        accuracy: float | None = 0.9,
        local_lr: float = 0.1,
        dataset: str = "mnist",
        extra: str = "",  # before the tables of the settings
        more: str = "",  # and after them
        algorithm: str = "fedcef",
        downlink: str = "increment",
        facts: dict[str, Any] | None = None,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        text = json.dumps(label)  # a JSON string is a TOML string
        known = {"algorithm": algorithm, "downlink": downlink, "local_lr": local_lr, "dataset": dataset}
        config = CONFIG.format(label=text, planned=planned, seed=seed, **known)
        (folder / "config.toml").write_text(extra + config + more, encoding="utf-8")
        if facts is not None:
            (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        lines = [_line(t, up, rounds, accuracy, broken=status == "diverged" and t == rounds) for t in range(rounds + 1)]
        (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        if status:
            summary = {**lines[-1], "label": label, "algorithm": algorithm, "dataset": dataset, "seed": seed}
            summary |= {"rounds": rounds, "status": status, "versions": {"fedcef": "0.1.0"}}
            (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        return folder

    return make


def _line(t: int, up: int, rounds: int, accuracy: float | None, broken: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"round": t, "wire_up_bytes": up * t, "wire_down_bytes": 2 * up * t, "wall_s": 0.5 * t}
    line |= {"paper_up_bytes": 3 * up * t, "paper_down_bytes": 4 * up * t}
    if t % 2 == 0 and not broken:  # evaluated every other round
        line |= {"train_loss": 2.0 * 0.8**t, "objective": 2.0 * 0.8**t + 1e-3, "stationarity": 0.9**t, "density": 0.25}
        if accuracy is not None:
            line["accuracy"] = accuracy * t / rounds
    return line
