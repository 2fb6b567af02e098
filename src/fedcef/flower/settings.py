"""From Flower's run config and node config to the settings of a run.

    run config      experiment   a shipped experiment's name, or a .toml file; looked for in the app, then here
                    set          changes, e.g. "rounds=10 compressor.ratio=0.01"
                    out          the server's run folder; by default a new one below runs/
                    resume       the run folder to go on with, instead
                    state-dir    where clients keep their states, if their own settings do not say
    node config     partition-id (or client)   the client's number, from 0
                    state-dir    where this client keeps its state
                    set          changes of what is this machine's own business, e.g. "device=cuda"
                    secure-key, secure-peers   its own key, and everyone's public ones, to sign for secure aggregation

This module is all that a client needs to say who it is, so it imports nothing heavy.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedcef.core.errors import ConfigError

if TYPE_CHECKING:
    from fedcef.runs.settings import Settings

Values = Mapping[str, bool | float | int | str]
"""A run config or node config, as Flower gives it."""


def experiment(run_config: Values, node_config: Values | None = None) -> Settings:
    """The settings of a run; a node's own changes come last."""
    from fedcef.runs.experiments import load_settings

    changes = _text(run_config, "set"), _text(node_config or {}, "set")
    return load_settings(
        _file(_text(run_config, "experiment")), [change for line in changes for change in _split(line)]
    )


def client_number(node_config: Values) -> int:
    """The client's number, which its node config must give."""
    number = node_config.get("client", node_config.get("partition-id"))
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(
            f"This node's number is {number!r}; it must be a whole number from 0 on, given to the SuperNode by "
            "--node-config 'partition-id=0'."
        )
    return number


def state_folder(run_config: Values, node_config: Values, client: int) -> Path:
    """Where a client keeps its states: it must be a disk that stays."""
    given = _text(node_config, "state-dir") or os.environ.get("FEDCEF_STATE") or _text(run_config, "state-dir")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(given or Path(home) / "fedcef").expanduser() / f"client-{client}"


def signing_files(node_config: Values) -> tuple[Path, Path] | None:
    """Where a node has its own key and everyone's, if it signs what it sends for secure aggregation.

    Only its own config says so: the run's comes from the server, against which it is.
    """
    key, peers = _text(node_config, "secure-key"), _text(node_config, "secure-peers")
    if bool(key) != bool(peers):
        raise ConfigError("secure-key and secure-peers belong together: give a node both of them, or neither.")
    return (Path(key).expanduser(), Path(peers).expanduser()) if key else None


def resumed(run_config: Values) -> Path | None:
    """The run folder to go on with, if any."""
    given = _text(run_config, "resume")
    if given and _text(run_config, "out"):
        raise ConfigError("resume goes on with a run in its own folder; leave `out` out.")
    return Path(given).expanduser().absolute() if given else None


def run_folder(run_config: Values, name: str) -> Path:
    """The folder of a new run."""
    from fedcef.runs.run import next_folder

    given = _text(run_config, "out")
    return Path(given).expanduser().absolute() if given else next_folder(Path("runs").absolute(), name)


def _file(name: str) -> str:
    """The path of an experiment's file; names of shipped ones stay as they are."""
    if not name:
        raise ConfigError(
            'The run config names no experiment; add experiment = "digits.toml" or a shipped one\'s name.'
        )
    if not name.endswith(".toml"):
        return name
    for folder in [*sys.path, "."]:  # Flower puts the app's folder first
        if (path := Path(folder) / Path(name).expanduser()).is_file():
            return str(path)
    raise ConfigError(f"There is no file {name} in the app or in {Path.cwd()}.")


def _text(values: Values, key: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise ConfigError(f"{key} is {value!r}; it must be a text.")
    return value


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise ConfigError(f'set is {line!r}; it must be like "rounds=10 compressor.ratio=0.01".') from None
