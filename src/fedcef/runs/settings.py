"""The settings of a run: a TOML file, dotted keys to change them, and what they build."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import COMPRESSORS, Compressor, Identity
from fedcef.core.amounts import as_bytes
from fedcef.core.errors import ConfigError
from fedcef.core.parts import check, check_prox_steps, choose, completed, explain, make, suggest, unknown_key
from fedcef.core.precision import Precision, state_dtype
from fedcef.core.ranges import Count, NotNegative, Positive, UnitInterval
from fedcef.core.schedules import SCHEDULES
from fedcef.privacy import Privacy
from fedcef.problems.catalog import DATA
from fedcef.problems.own import Clients, build_own, is_own
from fedcef.problems.problem import Problem, Weighting
from fedcef.regularizers import REGULARIZERS, OnParameters, Regularizer
from fedcef.runs.deployment_settings import Terms
from fedcef.simulation.budget import Budget, check_levels

Section = dict[str, Any]


def _named(default: str) -> BeforeValidator:
    """A section that only sets options means the default thing."""
    return BeforeValidator(lambda section: {"name": default, **section} if isinstance(section, dict) else section)


class Evaluation(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    every: Count = 1
    """Rounds between evaluations; the first and the last round are always evaluated."""
    train_samples: NotNegative = 0
    """How many training samples the loss and the gradient are taken on; 0 = all.  The last evaluation uses all."""
    optimum: bool = False
    """Solve the problem centrally first, and record the gap F(z) - F* (convex problems only)."""


class Variant(BaseModel):
    """One of the runs of a comparison: what differs from the file's settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    label: str
    changes: dict[str, Any] = Field(default_factory=dict, alias="set")


class Reference(BaseModel):
    """A point from elsewhere to draw beside the runs of a frontier; only a line where its accuracy is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    bytes: Annotated[Positive, BeforeValidator(as_bytes)]
    accuracy: UnitInterval | None = None


class Settings(BaseModel):
    """All settings of a run.  Sections `algorithm`, `compressor`, `regularizer`, `data` and `model` have a `name`
    and that thing's own options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "run"
    label: str = ""
    rounds: Count = 100
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    num_clients: Count = 10
    clients_per_round: NotNegative = 0
    """0 = all."""
    local_steps: Count = 10
    local_lr: Positive = 0.1
    server_lr: Positive = 1.0
    batch_size: NotNegative = 64
    """0 = all of a client's samples: exact gradients."""
    clip_norm: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Largest norm of a client's minibatch gradient; 0 = off."""
    weighting: Weighting = "uniform"
    """How clients count in the mean: alike, as in the paper, or by their number of samples."""
    local_schedule: Annotated[Section, _named("constant")] = {"name": "constant"}
    """A factor on local_lr that changes from round to round."""
    server_schedule: Annotated[Section, _named("constant")] = {"name": "constant"}
    oracle: Literal["auto", "loop", "stacked", "batched"] = "auto"
    precision: Precision = "float32"
    """The arithmetic of gradients; everything else is float32, or float64 for the precision of that name."""
    device: str = "cpu"
    """cpu, cuda, or auto: cuda where there is one."""
    cuda_graphs: bool = True
    """Whether a GPU replays a recording of the round, where the round can be recorded."""
    snapshot_every: NotNegative = 10
    """Rounds between snapshots to resume from; 0 = none."""
    budget: Annotated[NotNegative, BeforeValidator(as_bytes)] = 0
    """What all clients together may send and receive, e.g. "300MB": ratios then change from round to round; 0 = off."""
    budget_tilt: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Above 0 the first rounds get more of the budget than the last, below 0 less."""
    algorithm: Annotated[Section, _named("fedcef")] = {"name": "fedcef"}
    compressor: Annotated[Section, _named("identity")] = {"name": "identity"}
    down_compressor: Section = {}
    """What compresses the way down, in methods that have a lossy downlink."""
    regularizer: Annotated[Section, _named("l1")] = {"name": "l1"}
    privacy: Privacy | None = None
    """Clipping and noise for what clients send; None = off."""
    data: Annotated[Section, _named("digits")] = {"name": "digits"}
    model: Section = {}
    eval: Evaluation = Evaluation()
    deployment: Terms = Terms()
    """What a server demands of its clients; the simulator has no use for it."""
    compare: tuple[Variant, ...] = ()
    reference: tuple[Reference, ...] = ()

    def build_problem(self, clients: Clients = None) -> Problem:
        """The problem; `clients` says whose data is wanted, and is heeded by problems of the user's own."""
        if is_own(self.data["name"]):
            problem = build_own(self.data, self.num_clients, self.seed, self.model, clients)
        else:
            problem = make("data", DATA, self.data).build(self.num_clients, self.seed, self.model)
        problem = replace(problem, regularizer=self._regularizer(problem))
        return problem.to(_device(self.device), state_dtype(self.precision))

    def _regularizer(self, problem: Problem) -> Regularizer:
        options = dict(self.regularizer)
        patterns = check("regularizer.on", list[str], _listed(options.pop("on", "*")))
        regularizer = make("regularizer", REGULARIZERS, options)
        return OnParameters.matching(regularizer, problem.layout, patterns)

    def build_algorithm(self, problem: Problem) -> Algorithm:
        compressor = make("compressor", COMPRESSORS, self.compressor)
        name = choose("algorithm.name", self.algorithm["name"], ALGORITHMS)
        if not ALGORITHMS[name].compresses and not isinstance(compressor, Identity):
            raise ConfigError(
                f"{name} sends its vectors whole and has no place for the compressor {self.compressor['name']}; "
                "add compressor.name=identity."
            )
        algorithm = make(
            "algorithm",
            ALGORITHMS,
            self.algorithm,
            local_lr=self.local_lr,
            server_lr=self.server_lr,
            local_steps=self.local_steps,
            regularizer=problem.regularizer,
            compressor=compressor.fit(problem.layout),
            **self._down_compressor(name, problem),
        )
        check_prox_steps(self.regularizer["name"], problem.regularizer, name, algorithm, self.rounds)
        if self.budget:
            check_levels(algorithm)
        if self.privacy:
            return self.privacy.protect(name, algorithm, problem.z0, self.weighting, self.budget)
        return algorithm

    def build_budget(self) -> Budget | None:
        return Budget(self.budget, self.rounds, self.budget_tilt) if self.budget else None

    def _down_compressor(self, name: str, problem: Problem) -> dict[str, Compressor]:
        """The field of a method that can compress the way down."""
        able = any(f.name == "down_compressor" for f in fields(ALGORITHMS[name]))
        if self.down_compressor and not (able and self.algorithm.get("downlink") == "lossy"):
            raise ConfigError(
                "down_compressor is for the lossy downlink of fedcef; add algorithm.downlink=lossy, or leave it away."
            )
        made = make("down_compressor", COMPRESSORS, self._down_section()).fit(problem.layout)
        return {"down_compressor": made} if able else {}

    def _down_section(self) -> Section:
        return {"name": "topk", **self.down_compressor} if self.down_compressor else {"name": "topk", "ratio": 0.05}

    def variants(self) -> list[Settings]:
        """The runs of a comparison, each with its label."""
        if not self.compare:
            raise ConfigError(
                f"{self.name} has no [[compare]] entries; give each run a label and a table `set` of what differs."
            )
        base = self.model_dump(exclude={"compare", "reference"}, exclude_none=True)
        return [_validated(_changed(base, {**v.changes, "label": v.label})) for v in self.compare]

    def to_toml(self) -> str:
        """All settings, with the defaults of every named thing filled in."""
        off = {"reference"} | ({"compare"} if not self.compare else set())
        off |= {"budget", "budget_tilt"} if not self.budget else set()  # a run without one is what it always was
        off |= {"deployment"} if self.deployment == Terms() else set()
        table = self.model_dump(by_alias=True, exclude=off, exclude_none=True)
        if self.algorithm.get("downlink") == "lossy":
            table["down_compressor"] = self._down_section()
        common = [f.name for f in fields(Algorithm)]
        table["algorithm"] = completed(ALGORITHMS, self.algorithm, without=common)
        registries: dict[str, Mapping[str, type[Any]]] = {
            "compressor": COMPRESSORS,
            "down_compressor": COMPRESSORS,
            "regularizer": REGULARIZERS,
            "data": DATA,
            "local_schedule": SCHEDULES,
            "server_schedule": SCHEDULES,
        }
        for section, registry in registries.items():
            table[section] = completed(registry, table[section])
        return tomli_w.dumps(table)


def load_settings(name_or_path: str, changes: Iterable[str] = ()) -> Settings:
    """The settings of a shipped experiment or of a TOML file, changed by `key=value` strings."""
    try:
        table = tomllib.loads(_find(name_or_path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name_or_path} is not valid TOML: {error}.") from None
    table.setdefault("name", Path(name_or_path).stem)
    return _validated(_changed(table, dict(parse_change(change) for change in changes)))


def experiments() -> dict[str, str]:
    """Shipped experiments: name -> their first comment line."""
    folder = resources.files("fedcef") / "experiments"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return {f.name.removesuffix(".toml"): f.read_text("utf-8").splitlines()[0].lstrip("# ") for f in files}


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; it must be cpu, cuda or auto.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but torch sees no CUDA device here; use device = 'cpu'.")
    return device


def _find(name_or_path: str) -> str:
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"There is no file {path}.")
        return path.read_text("utf-8")
    if name_or_path not in experiments():
        if (path / "config.toml").is_file():
            raise ConfigError(f"{path} is the folder of a run; go on with it by `fedcef run --resume {path}`.")
        raise ConfigError(
            f"There is no experiment {name_or_path!r}; there are {', '.join(experiments())}, or give a .toml file."
            f"{suggest(path.stem, experiments())}"
        )
    return (resources.files("fedcef") / "experiments" / f"{name_or_path}.toml").read_text("utf-8")


def parse_change(change: str) -> tuple[str, Any]:
    """`key=value`, the value read as TOML and otherwise as plain text."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value, for example --set compressor.ratio=0.01; got {change!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text.strip()


def _changed(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the table with dotted keys set.  Naming another thing in a section drops the old one's options."""
    result = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for key in sorted(changes, key=lambda k: not k.endswith(".name")):
        section, dot, option = key.partition(".")
        if not dot:
            result[section] = changes[key]
            continue
        old = result.setdefault(section, {})
        if not isinstance(old, dict):
            raise ConfigError(f"{section} is a single value and has no {option}.")
        if option == "name" and old.get("name") not in (None, changes[key]):
            old.clear()
        old[option] = changes[key]
    return result


def _validated(table: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            *section, key = map(str, first["loc"])
            kinds: dict[str, type[BaseModel]] = {
                "eval": Evaluation,
                "deployment": Terms,
                "privacy": Privacy,
                "compare": Variant,
                "reference": Reference,
            }
            kind = kinds[section[0]] if section else Settings
            allowed = [".".join([*section, field.alias or name]) for name, field in kind.model_fields.items()]
            raise ConfigError(unknown_key(".".join([*section, key]), allowed)) from None
        raise ConfigError(explain(error)) from None
