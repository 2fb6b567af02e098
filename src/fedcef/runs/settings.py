"""The settings of a run, and what they build: the problem and the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import COMPRESSORS, Auto, Compressor, Identity
from fedcef.core.aggregation import Mean
from fedcef.core.amounts import as_bytes
from fedcef.core.errors import ConfigError
from fedcef.core.parts import Section, check, completed, described, find, is_path, make
from fedcef.core.precision import state_dtype
from fedcef.core.ranges import Count, Positive, UnitInterval
from fedcef.core.training import Evaluation, StoreOptions, Training
from fedcef.optimizers import LOCAL_UPDATES, SERVER_UPDATES, LocalUpdate
from fedcef.privacy import Privacy
from fedcef.problems.catalog import DATA, Classification, unused_options
from fedcef.problems.fitting import check_prox_steps, with_fitted_update
from fedcef.problems.own import Clients, build_own
from fedcef.problems.problem import Problem
from fedcef.regularizers import REGULARIZERS, OnParameters, Regularizer
from fedcef.runs.deployment_settings import DeploymentSettings
from fedcef.runs.devices import device_of
from fedcef.runs.own_compressors import own_compressor, own_unless_named
from fedcef.secure.section import Secure
from fedcef.simulation.choosing import check_choice

CODED = ("lossy", "snapshot")
"""Downlinks that have a compressor of their own."""
IN_PYTHON = "python"
"""data.name of a problem that was made in Python, which no settings can build."""


def _named(default: str) -> BeforeValidator:
    """A section that only sets options means the default thing."""
    return BeforeValidator(lambda section: {"name": default, **section} if isinstance(section, dict) else section)


def _section(name: str) -> Any:
    return Field(default_factory=lambda: {"name": name})


class Variant(BaseModel):
    """One of the runs of a comparison: what differs from the file's settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    label: str
    """What it is called in reports."""
    changes: dict[str, Any] = Field(default_factory=dict, alias="set")
    """Its own values, by dotted key."""


class Reference(BaseModel):
    """A point from elsewhere to draw beside the runs of a frontier; only a line where its accuracy is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    """What it is called in the figure."""
    bytes: Annotated[Positive, BeforeValidator(as_bytes)]
    """All that was sent, up and down."""
    accuracy: UnitInterval | None = None
    """What it reached, where that is known."""


class Settings(Training):
    """All settings of a run: its options, and what builds the problem and the method.

    Sections (`algorithm`, `compressor`, `regularizer`, `local_update`, `data`, `model` and so on) have a `name`, which
    may be an import path "package.module:Class", and that thing's own options.
    """

    name: str = "run"
    """What the experiment is called."""
    label: str = ""
    """What the run is called in reports."""
    num_clients: Count = 10
    """N: how many clients there are."""
    local_steps: Count = 10
    """K: how many local steps a client takes in a round."""
    local_lr: Positive = 0.1
    """α: the length of a local step."""
    server_lr: Positive = 1.0
    """η_g: a factor on the step that the server takes."""
    device: str = "cpu"
    """cpu, cuda (or cuda:1 for the second), or auto: cuda where there is one."""
    algorithm: Annotated[Section, _named("fedcef")] = _section("fedcef")
    """The method."""
    local_update: Section = Field(default_factory=dict)
    """What clients make of a gradient; nothing = plain steps."""
    server_update: Section = Field(default_factory=dict)
    """What the server makes of the clients' mean change; nothing = a plain step."""
    compressor: Annotated[Section, BeforeValidator(own_unless_named)] = Field({}, validate_default=True)
    """What compresses the way up; what is left out is the method's own."""
    down_compressor: Section = Field(default_factory=dict)
    """What compresses the way down, where the downlink is lossy or a snapshot."""
    regularizer: Annotated[Section, _named("l1")] = _section("l1")
    """h; `on` names the parameters that it is for, by patterns."""
    privacy: Privacy | None = None
    """Clipping and noise for what clients send; None = off."""
    secure: Secure | None = None
    """Secure aggregation: the server learns the sum of what clients send, and nothing else of it; None = off."""
    data: Annotated[Section, _named("digits")] = _section("digits")
    """The data set and its deal among the clients, or a problem of the user's own."""
    model: Section = Field(default_factory=dict)
    """The model, where the data set leaves a choice."""
    deployment: DeploymentSettings = DeploymentSettings()
    """What a server demands of its clients; the simulator has no use for it."""
    compare: tuple[Variant, ...] = ()
    """The runs of `fedcef compare`."""
    reference: tuple[Reference, ...] = ()
    """Points from elsewhere for `fedcef frontier`."""

    def build_problem(self, clients: Clients = None) -> Problem:
        """The problem; `clients` says whose data is wanted, and is heeded by problems of the user's own."""
        if is_path(self.data["name"]):
            problem = build_own(self.data, self.num_clients, self.seed, self.model, clients)
        elif self.data["name"] == IN_PYTHON:
            raise ConfigError("The problem was defined in Python and cannot be built from settings; resume it there.")
        else:
            problem = make("data", DATA, self.data).build(self.num_clients, self.seed, self.model)
        problem = replace(problem, regularizer=self._regularizer(problem))
        return problem.to(device_of(self.device), state_dtype(self.precision))

    def found_data(self) -> Section:
        """What is to be kept of the data beside the options of their section: the checksum of a text."""
        name = self.data["name"]
        return {} if is_path(name) or name == IN_PYTHON else make("data", DATA, self.data).found()

    def _regularizer(self, problem: Problem) -> Regularizer:
        options = dict(self.regularizer)
        patterns = check("regularizer.on", list[str], _listed(options.pop("on", "*")))
        regularizer = make("regularizer", REGULARIZERS, options)
        return OnParameters.matching(regularizer, problem.layout, patterns)

    def build_algorithm(self, problem: Problem) -> Algorithm:
        """The method for this problem."""
        name = str(self.algorithm["name"])
        kind = find("algorithm.name", name, ALGORITHMS)
        compressor = make("compressor", COMPRESSORS, self.compressor)
        if not kind.compresses and not isinstance(compressor, Identity):
            raise ConfigError(
                f"{name} has no place for the compressor {self.compressor['name']}; add compressor.name=identity."
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
            local_update=self._local_update(kind),
            server_update=make("server_update", SERVER_UPDATES, {"name": "plain", **self.server_update}),
            **self._down_compressor(kind, problem),
        )
        algorithm = with_fitted_update(algorithm, problem.layout, self.rounds)
        check_prox_steps(self.regularizer["name"], problem.regularizer, name, algorithm, self.rounds)
        check_choice(algorithm, self, problem)
        if self.privacy and isinstance(compressor, Auto):
            raise ConfigError(
                "compressor auto does not plan with noise in the messages; name another, or leave [privacy] out."
            )
        if self.secure:
            algorithm = self.secure.protect(name, algorithm, problem.z0, self, self.num_clients)
        if self.privacy:
            return self.privacy.protect(name, algorithm, problem.z0, self.weighting, self.budget)
        return algorithm

    def _local_update(self, kind: type[Algorithm]) -> LocalUpdate:
        """The local update that is asked for; without one the method has its own."""
        if not self.local_update:
            return kind.local_update
        own = described(kind.local_update, LOCAL_UPDATES)["name"]
        return make("local_update", LOCAL_UPDATES, {"name": own, **self.local_update})

    def _down_compressor(self, kind: type[Algorithm], problem: Problem) -> dict[str, Compressor]:
        """The field of a method that can compress the way down."""
        able = any(f.name == "down_compressor" for f in fields(kind))
        if self.down_compressor and not (able and self.algorithm.get("downlink") in CODED):
            raise ConfigError(
                "down_compressor is for two downlinks of fedcef; add algorithm.downlink=lossy or snapshot, or leave it "
                "out."
            )
        made = make("down_compressor", COMPRESSORS, self._down_section()).fit(problem.layout)
        return {"down_compressor": made} if able else {}

    def _down_section(self) -> Section:
        if self.down_compressor:
            return {"name": "topk", **self.down_compressor}
        return own_compressor(self.algorithm, "down_compressor")

    def variants(self) -> list[Settings]:
        """The runs of a comparison, each with its label."""
        if not self.compare:
            raise ConfigError(
                f"{self.name} has no [[compare]] entries; give each run a label and a table `set` of what differs."
            )
        own = {"compressor"} - self.model_fields_set  # that of the variant's method, which may be another
        table = self.model_dump(exclude={"compare", "reference"} | own, exclude_none=True)
        return [Settings(**changed(table, {**v.changes, "label": v.label})) for v in self.compare]

    def to_toml(self) -> str:
        """All settings, with the defaults of every named thing filled in."""
        off = {"reference"} | ({"compare"} if not self.compare else set())
        off |= {"budget", "budget_tilt"} if not self.budget else set()  # a run without one is what it always was
        off |= {"averaging"} if not self.averaging else set()
        off |= {"aggregation"} if self.aggregation == Mean() else set()
        off |= {"batches"} if self.batches == "drawn" else set()
        off |= {"micro_batch"} if not self.micro_batch else set()
        off |= {"compile"} if not self.compile else set()
        off |= {"cohort_chunk"} if not self.cohort_chunk else set()
        off |= {"workers"} if self.workers == "auto" else set()
        off |= {"store"} if self.store == StoreOptions() else set()
        off |= {"deployment"} if self.deployment == DeploymentSettings() else set()
        off |= {name for name in ("local_update", "server_update") if not getattr(self, name)}
        table: dict[str, Any] = {"name": self.name, "label": self.label}
        table |= self.model_dump(by_alias=True, exclude=off, exclude_none=True)
        for name in ("metrics", "clients", "per_client", "last_on_all"):
            if getattr(self.eval, name) == Evaluation.model_fields[name].default:
                del table["eval"][name]
        if self.algorithm.get("downlink") in CODED:
            table["down_compressor"] = self._down_section()
        common = [f.name for f in fields(Algorithm)]
        table["algorithm"] = completed(ALGORITHMS, self.algorithm, without=common)
        registries: dict[str, Mapping[str, type[Any]]] = {
            "compressor": COMPRESSORS,
            "down_compressor": COMPRESSORS,
            "regularizer": REGULARIZERS,
            "local_update": LOCAL_UPDATES,
            "server_update": SERVER_UPDATES,
        }
        for section, registry in registries.items():
            if section in table:
                table[section] = completed(registry, table[section])
        if not is_path(self.data["name"]):
            unused = unused_options(str(self.data.get("partition", Classification.partition)))
            table["data"] = completed(DATA, self.data, without=unused)
        return tomli_w.dumps(table)


def renewed(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of an earlier version in today's words.

    Rand-k's `scaled` is `unbiased`.  What a run wrote of itself names every option; where it names no rule for FedCEF
    with some of the clients, there was but one.
    """
    result = dict(table)
    method = result.get("algorithm")
    complete = {"label", "weighting", "oracle", "cuda_graphs"} <= set(table)
    some = 0 < (table.get("clients_per_round") or 0) < table.get("num_clients", 0)
    if complete and some and isinstance(method, Mapping) and "drift_weight" in method:  # FedCEF's, or of a kind of it
        result["algorithm"] = {"participation": "averaged", **method}
    for section in ("compressor", "down_compressor"):
        options = result.get(section)
        if isinstance(options, Mapping) and options.get("name") == "randk" and "scaled" in options:
            others = {key: value for key, value in options.items() if key != "scaled"}
            result[section] = {**others, "unbiased": options["scaled"] or options.get("unbiased", False)}
    return result


def changed(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
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


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value
