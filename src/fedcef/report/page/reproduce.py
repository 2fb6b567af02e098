"""How to run again: the exact command of every run, and its settings."""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import tomli_w
from markupsafe import Markup

from fedcef.core.errors import FedcefError
from fedcef.report.data.groups import Method
from fedcef.report.data.records import RunRecord, as_line
from fedcef.report.page.render import render
from fedcef.runs.experiments import experiments, load_settings, parse_change

NOT_OF_A_RUN = ("compare", "reference")


def command_of(record: RunRecord) -> str:
    """The command that repeats a run: a shipped experiment with changes where that gives its very settings, which needs
    no file; else its config.toml."""
    return _from_experiment(record.config) or _by_file(record)


def render_commands(items: Sequence[Method]) -> Markup:
    """All commands in one block to copy, then every run's settings, folded."""
    runs = [(record, item) for item in items for record in item.records]
    settings = [
        {
            "label": item.label,
            "seed": str(record.seed) if len(item.records) > 1 else None,
            "name": _name(record),
            "command": _by_file(record),
            "text": record.config_text,
        }
        for record, item in runs
        if record.config_text
    ]
    return render("reproduce.html", commands=[command_of(record) for record, _ in runs], settings=settings)


def _name(record: RunRecord) -> str:
    return as_line(record.folder.resolve().name)


def _by_file(record: RunRecord) -> str:
    return f"fedcef run {shlex.quote(_name(record) + '/config.toml')}"


def _from_experiment(config: Mapping[str, Any]) -> str | None:
    name = config.get("name")
    if not isinstance(name, str) or name not in _known():
        return None
    changes = [f"{key}={_written(value)}" for key, value in _flat(config).items() if _base(name).get(key, ...) != value]
    if not _gives(name, changes, config):
        return None
    shorter: list[str] | None = changes
    while shorter is not None:  # what follows from the others need not be said
        changes = shorter
        fewer = ([other for other in changes if other != change] for change in changes)
        shorter = next((some for some in fewer if _gives(name, some, config)), None)
    return shlex.join(["fedcef", "run", name, *(word for change in changes for word in ("--set", change))])


def _gives(name: str, changes: Sequence[str], config: Mapping[str, Any]) -> bool:
    """Whether an experiment with changes has the settings of the run."""
    try:
        again = tomllib.loads(load_settings(name, changes).to_toml())
    except FedcefError:  # settings of another version, or that `--set` cannot say
        return False
    return _run_only(again) == _run_only(config)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(experiments())


@lru_cache(maxsize=64)
def _base(name: str) -> dict[str, Any]:
    return _flat(tomllib.loads(load_settings(name).to_toml()))


def _run_only(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in NOT_OF_A_RUN}


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names that `--set` takes."""
    flat: dict[str, Any] = {}
    for key, value in _run_only(config).items():
        flat |= {f"{key}.{option}": of for option, of in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _written(value: Any) -> str:
    """A value as `--set` reads it: text plainly where that is not read as something else."""
    if isinstance(value, str) and value == value.strip() and parse_change(f"key={value}")[1] == value:
        return value
    return tomli_w.dumps({"value": value}).partition(" = ")[2].strip()
