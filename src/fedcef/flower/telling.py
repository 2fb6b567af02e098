"""What a server says while it runs, and at its end.

    FEDCEF_LOG=json         lines of JSON instead of sentences, one for each round, event and end
    FEDCEF_ON_END=COMMAND   called at the end with three arguments: how the run ended, its folder, and a sentence

Both are variables in the SuperLink's environment, which is the operator's: a run's own config cannot set them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fedcef.runs.reader import Record
from fedcef.runs.settings import Settings

End = Literal["finished", "stopped", "failed", "refused"]
"""How a server ends: all rounds are over; somebody stopped it; something did, and it can be resumed; it never began."""
HOOK_S = 60.0
"""How long a command at the end may take."""


def show(line: str) -> None:
    """Say something that is as it should be."""
    _print("info", line)


def tell(sentence: str) -> None:
    """Say something that a person should know."""
    _print("warning", sentence)


def show_round(record: Record, settings: Settings) -> None:
    """Say how a round ended: every one for a program, the evaluated ones for a person."""
    if _as_json():
        _print("round", "", **record)
    elif settings.is_evaluated(record["round"]):
        show(_line(record, settings.rounds))


def end(how: End, folder: Path | None, sentence: str) -> None:
    """Say how it ended, and call whoever wants to know."""
    if _as_json():
        _print("end", sentence, status=how, folder=str(folder or ""))
    command = os.environ.get("FEDCEF_ON_END", "")
    if not command:
        return
    try:
        subprocess.run([*shlex.split(command), how, str(folder or ""), sentence], timeout=HOOK_S, check=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        tell(f"FEDCEF_ON_END could not be called: {error}")


def _as_json() -> bool:
    return os.environ.get("FEDCEF_LOG") == "json"


def _print(kind: str, text: str, **more: object) -> None:
    stream = sys.stdout if kind in ("info", "round") else sys.stderr
    if _as_json():
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = json.dumps({"time": time, "kind": kind, **({"text": text} if text else {}), **more})
    print(text, file=stream, flush=True)


def _line(record: Record, rounds: int) -> str:
    measures = [f"accuracy {100 * record['accuracy']:.1f}%"] if "accuracy" in record else []
    measures += [f"objective {record['objective']:.4g}"] if "objective" in record else []
    up, down = record["transport_up_bytes"], record["transport_down_bytes"]
    parts = [
        f"round {record['round']}/{rounds}",
        *measures,
        f"{record['accepted']} clients",
        *([f"{record['refused']} refused"] if record["refused"] else []),
        f"{up / 1e6:.3f} MB up, {down / 1e6:.3f} MB down",
        f"{record['wall_s']:.1f} s",
    ]
    return "  ".join(parts)
