"""What may change between a stop and a resume: a machine's own business, and more rounds.

More rounds make another digest of the settings, and so another id of the run (identity.py).  Clients know their states
under it by their stamps (client_store.py).
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from fedcef.core.disk import Disk, PrivateDisk
from fedcef.core.errors import ConfigError, RunError
from fedcef.deployment.identity import LOCAL, RunId, read_run_id, settings_digest
from fedcef.problems.problem import Problem
from fedcef.runs.extending import counts_rounds
from fedcef.runs.folder import RunFolder, changes
from fedcef.runs.settings import Settings


def accept_changes(path: Path, begun: Settings, settings: Settings, problem: Problem, disk: Disk | None = None) -> str:
    """Make a run that began with some settings ready to go on with others; those that it cannot have are refused.

    Returns:
        A sentence on what has changed, if a person should know.
    """
    run, known = read_run_id(path / "run.json"), _rounds(path, begun)
    if run.settings not in {settings_digest(_with(begun, rounds)) for rounds in known}:
        raise RunError(f"{path / 'config.toml'} is not as the run was begun with; put it back, or begin a new run.")
    if settings_digest(_with(begun, settings.rounds)) != settings_digest(settings):
        raise ConfigError(
            f"The run in {path} was begun with other settings: {changes(_shared(begun), _shared(settings))}.  Give the "
            "same experiment and set as then, or begin a new run."
        )
    disk = disk or PrivateDisk()
    if run.settings == settings_digest(settings) == settings_digest(begun):
        if begun.deployment != settings.deployment:  # what is in force stands there, for whoever looks after the run
            disk.replace(path / "config.toml", _as_now(begun, settings).to_toml().encode())
        return ""
    if settings.rounds < begun.rounds:
        raise ConfigError(f"The run in {path} has {begun.rounds} rounds; it can get more, but not {settings.rounds}.")
    if settings.rounds > begun.rounds:
        _refuse_longer(path, begun, settings, problem)
    _extend(path, run, begun, settings, disk)
    if settings.rounds == begun.rounds:  # somebody was about to give it more, and did not come to it
        return ""
    return f"The run is longer now: it had {begun.rounds} rounds, and has {settings.rounds}."


def _refuse_longer(path: Path, begun: Settings, settings: Settings, problem: Problem) -> None:
    knowing = "privacy" if settings.privacy else counts_rounds(settings, settings.build_algorithm(problem))
    if knowing:
        raise ConfigError(
            f"The run in {path} cannot get more rounds than {begun.rounds}: {knowing} goes by their number; begin a "
            "new run."
        )


def _extend(path: Path, run: RunId, begun: Settings, settings: Settings, disk: Disk) -> None:
    """Two files change.  The id says for which numbers of rounds it may be, so that a kill between them is no harm."""
    again = RunId(settings_digest(settings), run.nonce)
    known = sorted({begun.rounds, settings.rounds})
    RunFolder(path).summary.unlink(missing_ok=True)
    disk.replace(path / "run.json", json.dumps({"run": str(again), "rounds": known}).encode())
    disk.replace(path / "config.toml", _as_now(begun, settings).to_toml().encode())


def _rounds(path: Path, begun: Settings) -> set[int]:
    """The numbers of rounds for which the run's id may be."""
    try:
        return {begun.rounds, *json.loads((path / "run.json").read_text("utf-8")).get("rounds", ())}
    except (OSError, ValueError, AttributeError, TypeError):
        return {begun.rounds}


def _with(settings: Settings, rounds: int) -> Settings:
    return settings.model_copy(update={"rounds": rounds})


def _as_now(begun: Settings, settings: Settings) -> Settings:
    """The settings that a run was begun with, but for those that may change and matter to the server's folder."""
    return begun.model_copy(update={"rounds": settings.rounds, "deployment": settings.deployment})


def _shared(settings: Settings) -> dict[str, object]:
    return {key: value for key, value in tomllib.loads(settings.to_toml()).items() if key not in LOCAL}
