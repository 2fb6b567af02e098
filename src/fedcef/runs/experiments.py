"""From a name, a TOML file and `key=value` changes to the settings of a run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from fedcef.core.errors import ConfigError
from fedcef.core.parts import suggest
from fedcef.runs.kinds import resume_command
from fedcef.runs.settings import Settings, changed, renewed


def load_settings(name_or_path: str, changes: Iterable[str] = ()) -> Settings:
    """The settings of a shipped experiment or of a TOML file, changed by `key=value` strings.

    >>> load_settings("demo", ["rounds=5", "compressor.ratio=0.01"])
    """
    try:
        table = tomllib.loads(_find(name_or_path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name_or_path} is not valid TOML: {error}.") from None
    table.setdefault("name", Path(name_or_path).stem)
    return Settings(**changed(renewed(table), dict(parse_change(change) for change in changes)))


def experiments() -> dict[str, str]:
    """Shipped experiments: name -> their first comment line."""
    folder = resources.files("fedcef") / "experiments"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return {f.name.removesuffix(".toml"): f.read_text("utf-8").splitlines()[0].lstrip("# ") for f in files}


def parse_change(change: str) -> tuple[str, Any]:
    """`key=value`, the value read as TOML and otherwise as plain text."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value, for example --set compressor.ratio=0.01; got {change!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text.strip()


def _find(name_or_path: str) -> str:
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"There is no file {path}.")
        return path.read_text("utf-8")
    if name_or_path not in experiments():
        if (path / "config.toml").is_file():
            raise ConfigError(f"{path} is the folder of a run; go on with it by `{resume_command(path)}`.")
        raise ConfigError(
            f"There is no experiment {name_or_path!r}; there are {', '.join(experiments())}, or give a .toml file."
            f"{suggest(path.stem, experiments())}"
        )
    return (resources.files("fedcef") / "experiments" / f"{name_or_path}.toml").read_text("utf-8")
