"""The options of a run: each is declared, checked and explained here, and nowhere else.

`fedcef.run`, `Simulation`, the settings in TOML files (`runs.settings.Settings` is a `Training` with more) and a
deployed client all take this object, so that an option means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SkipValidation,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from fedcef.core.aggregation import AGGREGATIONS, Aggregation, Mean
from fedcef.core.amounts import as_bytes
from fedcef.core.attack import Attack
from fedcef.core.errors import ConfigError
from fedcef.core.network import Network
from fedcef.core.parts import Section, described, explain, make, unknown_key, validate
from fedcef.core.precision import Precision
from fedcef.core.ranges import Count, NonNegative, NotNegative
from fedcef.core.schedules import SCHEDULES, Constant, Schedule

Weighting = Literal["uniform", "samples"]
"""How clients count in a mean: alike, as in the paper, or by their number of samples."""

Batches = Literal["drawn", "epochs"]
"""How a client's minibatches are chosen: drawn with replacement, or in random orders of all its samples."""

OracleName = Literal["auto", "loop", "stacked", "batched", "layered"]
"""How the clients' gradients are computed; see `fedcef.oracles`."""


WORKERS = ("auto", "local", "distributed", "ray")
"""Who does the clients' work; see `fedcef.simulation.workers`."""


def _known_workers(value: str) -> str:
    name, colon, count = value.partition(":")
    if name not in WORKERS or (colon and (name != "ray" or not count.isdecimal() or int(count) < 1)):
        raise ValueError("auto, local, distributed, ray, or ray and a number of actors such as ray:4")
    return value


def _none_is_zero(value: Any) -> Any:
    return 0 if value is None else value


def _one_is_a_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) or callable(value) else value


def _a_name_is_a_section(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _a_name_is_a_preset(value: Any) -> Any:
    return {"preset": value} if isinstance(value, str) else value


def _a_name_is_a_measure(value: Any) -> Any:
    return {"measure": value} if isinstance(value, str) else value


def _as_path(metric: Any) -> Any:
    return metric if isinstance(metric, str) else f"{metric.__module__}:{getattr(metric, '__qualname__', metric)}"


MetricOption = Annotated[str | Callable[..., Any], PlainSerializer(_as_path)]


def _as_schedule(value: Any, info: ValidationInfo) -> Schedule:
    """A schedule from an object, a name or a section of settings."""
    section = str(info.field_name)
    if isinstance(value, Schedule):
        if is_dataclass(value):
            validate(value)
        return value
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        raise ValueError("a schedule, its name or a section with its name and options")
    return make(section, SCHEDULES, {"name": "constant", **value})


def _as_rule(value: Any) -> Aggregation:
    """A rule from an object, a name or a section of settings."""
    if isinstance(value, Aggregation):
        if is_dataclass(value):
            validate(value)
        return value
    if not isinstance(value, str | dict):
        raise ValueError("a rule, its name or a section with its name and options")
    return make("aggregation", AGGREGATIONS, {"name": value} if isinstance(value, str) else {"name": "mean", **value})


def _as_section(part: Schedule | Aggregation) -> Section:
    registry: dict[str, type[Any]] = {**SCHEDULES, **AGGREGATIONS}
    section, kind = described(part, registry), type(part)
    return section if kind in registry.values() else {**section, "name": f"{kind.__module__}:{kind.__qualname__}"}


ScheduleOption = Annotated[SkipValidation[Schedule], BeforeValidator(_as_schedule), PlainSerializer(_as_section)]
RuleOption = Annotated[SkipValidation[Aggregation], BeforeValidator(_as_rule), PlainSerializer(_as_section)]


class Options(BaseModel):
    """Frozen options whose mistakes are told in one sentence."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(self._sentence(error)) from None

    @classmethod
    def _sentence(cls, error: ValidationError) -> str:
        first = error.errors()[0]
        if first["type"] != "extra_forbidden":
            return explain(error)
        *section, key = map(str, first["loc"])
        kind: Any = cls
        for name in section:
            kind = _model_in(kind.model_fields[name].annotation) if name in kind.model_fields else kind
        names = [field.alias or name for name, field in kind.model_fields.items()]
        return unknown_key(".".join([*section, key]), [".".join([*section, name]) for name in names])


def _model_in(annotation: Any) -> Any:
    """The model behind an annotation: itself, or the one inside an optional or a tuple."""
    inner = getattr(annotation, "__args__", ())
    return next((kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)), annotation)


class Evaluation(BaseModel):
    """When and on what a run is evaluated: the section `eval`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: Count = 1
    """Rounds between evaluations; the first and the last round are always evaluated."""
    train_samples: NotNegative = 0
    """How many training samples the loss and gradient are computed on; 0 = all, as in the simulator's last round."""
    clients: NotNegative = 0
    """How many clients the loss and the gradient are computed on, always the same ones; 0 = all, or 1,000 if there are
    more than 16,384."""
    optimum: bool = False
    """Solve the problem centrally first, and record the gap F(z) - F* (convex problems only)."""
    metrics: Annotated[tuple[MetricOption, ...], BeforeValidator(_one_is_a_list)] = ()
    """Further measures on the test set, by name or by the import path of a function of your own."""
    per_client: bool = False
    """Whether to record how much clients differ: mean, worst tenth, worst and spread of their accuracies, or of their
    losses where there are no classes, on the training samples that are evaluated."""
    last_on_all: bool = True
    """Whether the last round is evaluated on all training samples, whatever `train_samples` says."""


class Stopping(BaseModel):
    """When a run ends before its last round: the section `stop`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measure: str
    """The measure to watch, in the record of every evaluated round."""
    patience: Count = 10
    """The run ends after this many evaluations in a row without a better value."""
    mode: Literal["auto", "min", "max"] = "auto"
    """Whether lower or higher values are better; auto knows this for the package's own measures."""
    least: NonNegative = 0.0
    """By how much a value must improve on the best so far to count as better."""


class StoreOptions(BaseModel):
    """Where clients' states are kept between rounds, and in what form: the section `store`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["auto", "table", "memory", "host", "disk"] = "auto"
    """A table with all clients; rows of those seen, on the device, on the host or on a disk; or what suits the size."""
    code: Literal["exact", "bfloat16", "nonzeros"] = "exact"
    """Every number as it is, rounded to bfloat16 (which changes results), or only those that are not zero, exactly."""
    limit: Annotated[NotNegative, BeforeValidator(lambda amount: as_bytes(_none_is_zero(amount)))] = 0
    """How many bytes the states may take on a disk, e.g. "20GB"; 0 = any.  Files may take twice that, and 64 MiB."""

    @model_validator(mode="after")
    def _fits(self) -> StoreOptions:
        if self.name == "table" and self.code != "exact":
            raise ConfigError(
                f"A table keeps every number as it is; with store.code = {self.code!r} take store.name = 'memory', "
                "'host' or 'disk'."
            )
        if self.limit and self.name != "disk":
            raise ConfigError("store.limit is for rows on a disk; add store.name = 'disk', or leave it out.")
        return self


class Training(Options):
    """All options of a run but the problem and the method.

    >>> Training(rounds=200, batch_size=32, clip_norm=5.0, local_schedule="cosine")
    """

    rounds: Count = 100
    """The number of rounds."""
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """Determines minibatches, cohorts, random compressors and, for shipped data, the partition and initial model."""
    clients_per_round: Annotated[NotNegative, BeforeValidator(_none_is_zero)] = 0
    """How many clients take part in a round; 0 = all."""
    batch_size: NotNegative = 64
    """Samples in a local step; 0 = all of a client's samples, that is, exact gradients."""
    batches: Batches = "drawn"
    """How minibatches are chosen: drawn with replacement, or in epochs: within a round a client goes through all its
    samples in a random order, then in another."""
    clip_norm: Annotated[NonNegative, BeforeValidator(_none_is_zero)] = 0.0
    """Largest norm of a client's minibatch gradient; 0 = off."""
    weighting: Weighting = "uniform"
    """The weight of a client in the mean: equal, as in the paper, or its number of samples."""
    aggregation: RuleOption = Mean()
    """What the server makes of the clients' vectors: their mean, or a rule that bounds what a few can do to it."""
    local_schedule: ScheduleOption = Constant()
    """A factor on local_lr that changes from round to round."""
    server_schedule: ScheduleOption = Constant()
    """A factor on server_lr that changes from round to round."""
    oracle: OracleName = "auto"
    """How gradients are computed: client after client, all in one call, by batched kernels, or what suits the model."""
    precision: Precision = "float32"
    """The arithmetic of gradients; everything else is float32, or float64 for the precision of that name."""
    micro_batch: NotNegative = 0
    """How many samples of a step go through the model at a time, to save memory; 0 = all.  Their gradients add up to
    that of the whole batch, up to rounding."""
    compile: bool = False
    """Whether to compile the model with torch.compile, which takes a while at the start."""
    cuda_graphs: bool = True
    """Whether a GPU replays a recording of the round, where the round can be recorded."""
    snapshot_every: NotNegative = 10
    """Rounds between snapshots to resume from; 0 = none."""
    budget: Annotated[NotNegative, BeforeValidator(lambda amount: as_bytes(_none_is_zero(amount)))] = 0
    """What all clients together may send and receive, e.g. "300MB"; ratios then vary from round to round; 0 = off."""
    budget_tilt: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Above 0 the first rounds get more of the budget than the last, below 0 less."""
    averaging: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """By what factor the weight of a round's model falls with each further round, in the running mean that is evaluated
    and saved as the trained model: a mean over about 1/(1 - averaging) rounds.  Training does not see it, and nothing
    is sent for it.  0 = the last round's model."""
    eval: Evaluation = Evaluation()
    """When the model is evaluated, and on how many samples."""
    stop: Annotated[Stopping | None, BeforeValidator(_a_name_is_a_measure)] = None
    """When to end before the last round, in a simulation; None = never."""
    store: Annotated[StoreOptions, BeforeValidator(_a_name_is_a_section)] = StoreOptions()
    """Where the clients' states are kept."""
    cohort_chunk: NotNegative = 0
    """How many of a cohort's clients are in memory at a time; 0 = all.  Results do not depend on it."""
    workers: Annotated[str, AfterValidator(_known_workers)] = "auto"
    """Who does the clients' work: this process (local), those that torchrun started (distributed), actors of Ray (ray,
    or ray:4 for four of them).  auto is distributed under torchrun, local otherwise.  Results do not depend on it."""
    network: Annotated[Network | None, BeforeValidator(_a_name_is_a_preset)] = None
    """What the clients' links and machines are like, for a clock in the records; None = no clock."""
    attack: Annotated[Attack | None, BeforeValidator(_a_name_is_a_section)] = None
    """Clients that lie, in a simulation; None = nobody."""

    def is_evaluated(self, round_: int) -> bool:
        """Whether the model is evaluated after so many rounds."""
        return round_ == self.rounds or round_ % self.eval.every == 0

    def is_kept(self, round_: int) -> bool:
        """Whether a snapshot is taken after so many rounds."""
        due = round_ == self.rounds or (self.snapshot_every and round_ % self.snapshot_every == 0)
        return bool(self.snapshot_every and round_ and due)
