"""Two kinds of run folders, simulated and deployed: each is gone on with by its own command, and by no other.

The simulator cannot go on with a server's run: the clients' states are on their own disks, and it would begin again.
"""

from __future__ import annotations

import json
from pathlib import Path

from fedcef.core.errors import RunError

DEPLOYED = ("run.json", "accepted.bin", "clients.jsonl", "clients.json")
"""Files that only the server of a deployment writes; one of them, whichever is left, tells."""
TWO_LINES = "two lines"
"""What run.json calls the app of whoever has only wrapped a strategy of Flower's."""


def is_deployed(path: Path) -> bool:
    """Whether a folder is that of a deployment's server."""
    return any((path / name).exists() for name in DEPLOYED)


def resume_command(path: Path) -> str:
    """What goes on with the run in a folder, as it is typed."""
    if _is_wrapped(path):
        return f'Compressed(..., folder="{path}", resume=True)'
    if is_deployed(path):
        return f"flwr run APP CONNECTION --stream --run-config 'resume=\"{path.absolute()}\"'"
    return f"fedcef run --resume {path}"


def refuse_deployed(path: Path) -> None:
    """Keep the simulator from the folder of a deployment's server."""
    if _is_wrapped(path):
        raise RunError(f"{path} is the folder of a Flower app; go on with it there: `{resume_command(path)}`.")
    if is_deployed(path):
        raise RunError(f"{path} is the folder of a deployment's server; go on with it there: `{resume_command(path)}`.")


def refuse_simulated(path: Path) -> None:
    """Keep a deployment's server from the folder of a simulated run, or of another Flower app."""
    if _is_wrapped(path):
        raise RunError(
            f"{path} is the folder of a Flower app with a strategy of its own, whose server has no clients here; go on "
            f"with it in that app: `{resume_command(path)}`."
        )
    if (path / "config.toml").is_file() and not is_deployed(path):
        raise RunError(
            f"{path} is the folder of a simulated run, which a deployment cannot go on with; go on with it by "
            f"`{resume_command(path)}`, or leave `resume` out to begin a deployed run."
        )


def _is_wrapped(path: Path) -> bool:
    """Whether a folder is that of a Flower app whose strategy was wrapped (flower/two_lines)."""
    try:
        return bool(json.loads((path / "run.json").read_bytes())["app"] == TWO_LINES)
    except (OSError, ValueError, KeyError, TypeError):
        return False
