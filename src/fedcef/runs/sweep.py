"""Many runs: from lists of settings to one folder per run, and a table of what came out."""

from __future__ import annotations

import csv
import json
import tomllib
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, Literal

from fedcef.core.disk import Disk
from fedcef.core.errors import ConfigError, DivergedError, FedcefError
from fedcef.runs.experiments import load_settings, parse_change
from fedcef.runs.folder import RunFolder
from fedcef.runs.loop import Watcher
from fedcef.runs.run import run
from fedcef.runs.settings import Settings, Variant

Status = Literal["new", "interrupted", "finished", "diverged", "failed"]
Swept = dict[str, list[Any]]
BYTES = ("wire_up_bytes", "wire_down_bytes", "paper_up_bytes", "paper_down_bytes", "wire_catch_up_bytes")
MEASURES = ("accuracy", "train_loss", *BYTES, "wall_s")
Watching = Callable[[Settings], AbstractContextManager[Watcher]]
NAME_LENGTH = 120  # of a folder; file systems allow 255 bytes


@dataclass(frozen=True)
class Planned:
    """One run of a sweep: its settings, its folder, and the values it has of the swept settings."""

    config: Settings
    path: Path
    swept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is called while it runs: its label, and the seed where that is swept."""
        return f"{self.config.label}, seed={self.swept['seed']}" if "seed" in self.swept else self.config.label


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `sentence` says why it diverged or failed."""

    planned: Planned
    status: Status
    sentence: str = ""
    exit_code: int = 0


# From settings to runs


def variants_or_itself(config: Settings) -> list[Settings]:
    """The variants of an experiment; without any, the experiment as it is."""
    return config.variants() if config.compare else [config]


def plan(
    experiments: Iterable[str],
    changes: Iterable[str],
    only: Sequence[str] = (),
    variants_of: Callable[[Settings], list[Settings]] = variants_or_itself,
) -> list[Planned]:
    """The runs of a sweep, their folders relative to the sweep's own; of several experiments each has a sub-folder."""
    plain, swept = split(changes)
    configs = [load_settings(experiment, plain) for experiment in experiments]
    choices = [variants_of(config) for config in configs]
    known = list(dict.fromkeys(_label(variant) for variants in choices for variant in variants))
    kept = {_kept(label, known) for label in only}
    groups = [
        expand([variant for variant in variants if not only or _label(variant) in kept], swept) for variants in choices
    ]
    if len(groups) == 1:
        return groups[0]
    parents = map(Path, _distinct(_folder_name(config.name) for config in configs))
    return [replace(p, path=parent / p.path) for parent, group in zip(parents, groups, strict=True) for p in group]


def _kept(label: str, known: Sequence[str]) -> str:
    """The variant that is called so, or the only one whose label has this in it."""
    if label in known:
        return label
    alike = [name for name in known if label.lower() in name.lower()]
    if len(alike) != 1:
        there = ", ".join(map(repr, alike or known))
        what = f"{len(alike)} variants have {label!r} in their label" if alike else f"There is no variant {label!r}"
        raise ConfigError(f"{what} to keep by --only; there are {there}.")
    return alike[0]


def split(changes: Iterable[str]) -> tuple[list[str], Swept]:
    """`key=value` strings apart: those that set one value, and the lists to sweep over."""
    parsed = {key: (change, value) for change in changes for key, value in [parse_change(change)]}
    swept = {key: value for key, (_, value) in parsed.items() if isinstance(value, list)}
    for key, values in swept.items():
        if key in ("name", "label", "compare", "reference"):
            raise ConfigError(f"{key} cannot be swept; sweep over settings that change a run.")
        if not values:
            raise ConfigError(f"--set {key}=[] sweeps over nothing; give at least one value.")
        if len({_text(value) for value in values}) < len(values):
            raise ConfigError(f"--set {key}={_text(values)} has a value twice; give each value once.")
    return [change for change, value in parsed.values() if not isinstance(value, list)], swept


def expand(variants: Iterable[Settings], swept: Swept) -> list[Planned]:
    """Every variant with every combination of the swept values on top; the last key varies fastest."""
    runs = []
    for variant in variants:
        chosen = [dict(zip(swept, values, strict=True)) for values in product(*swept.values())]
        entries = tuple(Variant(label=_label(variant, values), set=values) for values in chosen)
        configs = variant.model_copy(update={"compare": entries}).variants()
        runs += [Planned(config, Path(), values) for config, values in zip(configs, chosen, strict=True)]
    names = _distinct(_folder_name(planned.name) for planned in runs)
    return [replace(planned, path=Path(name)) for planned, name in zip(runs, names, strict=True)]


def _label(variant: Settings, swept: Mapping[str, Any] | None = None) -> str:
    """The label with what was swept; seeds are left out, because a report takes the mean over them."""
    values = [f"{key}={_text(value)}" for key, value in (swept or {}).items() if key != "seed"]
    return ", ".join([variant.label or variant.name, *values])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _folder_name(label: str) -> str:
    name = "".join(c if c.isalnum() or c in ".=-" else "_" for c in label.lower())[:NAME_LENGTH]
    return name if name.strip(".") else "run"  # `.` and `..` are other folders


def _distinct(names: Iterable[str]) -> list[str]:
    """Names with a number where they would meet: a, b, a-2."""
    taken: list[str] = []
    for name in names:
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}-{number}"
        taken.append(free)
    return taken


# What is on disk


def status(planned: Planned) -> Status:
    """Where a run stands by its folder; one that holds other settings is refused."""
    folder = RunFolder(planned.path)
    if not folder.config.exists():
        return "new"
    if _table(load_settings(str(folder.config))) != _table(planned.config):
        raise ConfigError(f"{planned.path} holds a run with other settings; choose another --out.")
    summary = folder.read_summary()
    if not summary:
        return "interrupted"
    return "diverged" if summary.get("status") == "diverged" else "finished"


def _table(config: Settings) -> dict[str, Any]:
    """Settings as they are compared: with all defaults, in whatever order they were written."""
    return tomllib.loads(config.to_toml())


def write_summary(outcomes: Sequence[Outcome], path: Path) -> None:
    """A CSV file with one row per run, in the order given; a run that failed has no measures."""
    keys = list(dict.fromkeys(key for o in outcomes for key in o.planned.swept if key != "seed"))
    text = StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    summaries = [RunFolder(outcome.planned.path).read_summary() for outcome in outcomes]
    names = [*MEASURES, *(["sim_s"] if any("sim_s" in summary for summary in summaries) else [])]
    rows.writerow(["label", "seed", *keys, "status", *names, "folder"])
    for outcome, measured in zip(outcomes, summaries, strict=True):
        config, swept = outcome.planned.config, outcome.planned.swept
        values = [_text(swept[key]) if key in swept else "" for key in keys]
        measures = [measured.get(name) for name in names]
        folder = outcome.planned.path.relative_to(path.parent).as_posix()
        rows.writerow([config.label, config.seed, *values, outcome.status, *measures, folder])
    Disk().replace(path, text.getvalue().encode())


# The work


def attempt(planned: Planned, watch: Watcher) -> Outcome:
    """Run or resume; whatever goes wrong concerns this run alone."""
    folder = RunFolder(planned.path)
    try:
        run(planned.config, folder, resume=folder.config.exists(), watch=watch)
    except DivergedError as error:
        return Outcome(planned, "diverged", str(error))
    except FedcefError as error:
        return Outcome(planned, "failed", str(error), error.exit_code)
    except Exception as error:  # no mistake of the user's (memory, a bug): a night of other runs need not end with it
        traceback.print_exc()
        return Outcome(planned, "failed", f"{type(error).__name__}: {error}", 1)
    return Outcome(planned, "finished")


def one_by_one(runs: Iterable[Planned], watching: Watching) -> Generator[Outcome, None, None]:
    """Carry out the runs in this process, each watched."""
    for planned in runs:
        with watching(planned.config) as watch:
            outcome = attempt(planned, watch)
        yield outcome
