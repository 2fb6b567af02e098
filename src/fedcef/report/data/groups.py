"""Runs grouped into methods: one curve per method, over its seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcef.core.errors import RunError
from fedcef.report.data.link_time import ClientLink
from fedcef.report.data.names import AT_MOST_1, METRICS, dataset_title, metric_title
from fedcef.report.data.records import Column, RunRecord
from fedcef.runs.reader import flatten

MEASURED = ("round", "wire_up_bytes", "wire_bytes", "paper_bytes", "wall_s")  # what all axes follow from
CLOCK = "sim_s"  # the axis of runs on a simulated network of their own
LINK = "network_s"  # an estimate for others, over links that are all alike
X_AXES = ("wire_bytes", "paper_bytes", "round", "wall_s", LINK)
_SHARES = {*AT_MOST_1, *(name for name, (_, unit, _) in METRICS.items() if unit == "%")}
LOG_SPAN = 20.0  # beyond this ratio a linear axis of losses hides the small end
LOG_BYTES = 5.0  # and from this one an axis of bytes
NOT_SETTINGS = ("name", "label", "out", "device", "compare", "reference")  # do not make two runs different methods
FINGERPRINT = "data.fingerprint"  # of a problem made in Python: its start point, and perhaps its split, follow the seed


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric at the rounds where every seed has it: mean, least and greatest over the seeds, means of the x axes."""

    x: dict[str, Column]
    mean: Column
    low: Column
    high: Column


@dataclass(frozen=True, eq=False)
class Method:
    """A method with its settings: runs that differ only in their seeds."""

    label: str
    records: tuple[RunRecord, ...]
    link: ClientLink = ClientLink()
    _curves: dict[str, Curve | None] = field(default_factory=dict, repr=False)  # those that were asked for
    _rounds: dict[bytes, tuple[list[Any], dict[str, Column]]] = field(default_factory=dict, repr=False)

    @property
    def diverged(self) -> int:
        """How many of its runs did."""
        return sum(record.status == "diverged" for record in self.records)

    @property
    def note(self) -> str:
        """What the reader must know before comparing: "", "diverged", "1 of 3 diverged" or "unfinished"."""
        if self.diverged:
            runs = len(self.records)
            return "diverged" if self.diverged == runs else f"{self.diverged} of {runs} diverged"
        return "unfinished" if any(record.status == "unfinished" for record in self.records) else ""

    @property
    def algorithm(self) -> str:
        """Its name in the settings, or what stands for it where that is not known."""
        first = self.records[0]
        return str(first.section("algorithm").get("name") or first.summary.get("algorithm") or self.label)

    @property
    def downlink(self) -> str:
        """How the server sends, by name: what the run chose, or its settings say; "" where there is no choice."""
        first = self.records[0]
        return str(first.summary.get("downlink") or first.section("algorithm").get("downlink", ""))

    @property
    def name(self) -> str:
        """The label as it stands in legends."""
        return f"{self.label} ({self.note})" if self.note else self.label

    @property
    def participants(self) -> int | None:
        """The clients that take part in a round, where it is known."""
        return self.records[0].participants

    @property
    def has_clock(self) -> bool:
        """Whether its runs were on a simulated network, whose clock they recorded."""
        return all(CLOCK in record.rounds for record in self.records)

    def last(self, name: str) -> Column:
        """(seeds,) the last values; both directions together for `wire_bytes` and `paper_bytes`.

        Runs of before catch-up was counted have none of it.
        """
        if name in ("wire_bytes", "paper_bytes"):
            count = name.removesuffix("_bytes")
            return self.last(f"{count}_up_bytes") + self.last(f"{count}_down_bytes")
        values = np.array([record.last(name) for record in self.records])
        return np.nan_to_num(values) if name.endswith("_catch_up_bytes") else values

    def curve(self, metric: str) -> Curve | None:
        """The method's curve, or None where no round has the metric for every seed."""
        if metric not in self._curves:
            self._curves[metric] = self._curve(metric)
        return self._curves[metric]

    def _curve(self, metric: str) -> Curve | None:
        tables = [record.rounds for record in self.records]
        if any(metric not in t for t in tables):
            return None
        known = [t["round"][np.isfinite(t[metric])] for t in tables]
        shared = known[0]
        for other in known[1:]:
            shared = np.intersect1d(shared, other)
        if not shared.size:
            return None
        at, x = self._taken(shared)
        values = [t[metric][i] for t, i in zip(tables, at, strict=True)]
        if len(values) == 1:
            return Curve(x, values[0], values[0], values[0])
        return Curve(x, np.mean(values, axis=0), np.min(values, axis=0), np.max(values, axis=0))

    def _taken(self, shared: Column) -> tuple[list[Any], dict[str, Column]]:
        """Where some rounds are in every record, and what it took to get there; the same object for the same rounds."""
        key = shared.tobytes()
        if key not in self._rounds:
            tables = [record.rounds for record in self.records]
            at = [np.searchsorted(t["round"], shared) for t in tables]
            axes = (*MEASURED, CLOCK) if self.has_clock else MEASURED
            x = {axis: np.mean([t[axis][i] for t, i in zip(tables, at, strict=True)], axis=0) for axis in axes}
            if self.participants:
                x[LINK] = self.link.seconds(x, self.participants)
            self._rounds[key] = at, x
        return self._rounds[key]


@dataclass(frozen=True)
class Group:
    """Methods with panels of their own; `places` are their positions in the legend, which all groups share."""

    name: str  # the data set; "" where there is one group
    items: tuple[Method, ...]
    places: tuple[int, ...]
    metrics: tuple[str, ...]

    def key(self, metric: str) -> str:
        """The name of a panel among those of all groups."""
        return f"{metric}_{self.name}" if self.name else metric

    def title(self, metric: str) -> str:
        """What stands above a panel."""
        title = metric_title(metric)
        return f"{dataset_title(self.name)}: {title[0].lower()}{title[1:]}" if self.name else title


def group_runs(records: Sequence[RunRecord], link: ClientLink = ClientLink()) -> list[Method]:
    """Groups runs that share label and settings and differ in the seed, in the order of the first of each.

    Different methods under one label are told apart by their folders' names.
    """
    if not records:
        raise RunError("There is nothing to report: give at least one run folder.")
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        settings = settings_as_text(record.config)
        same = {k: v for k, v in settings.items() if k not in (*NOT_SETTINGS, FINGERPRINT) and not k.endswith("seed")}
        groups.setdefault((record.label, repr(sorted(same.items()))), []).append(record)
    parts: list[list[RunRecord]] = []
    for group in groups.values():
        distinct = len({record.seed for record in group}) == len(group)
        parts.extend([group] if distinct else [[record] for record in group])
    labels = [part[0].label for part in parts]
    names = [
        label if labels.count(label) == 1 else f"{label} [{part[0].folder.resolve().name}]"
        for label, part in zip(labels, parts, strict=True)
    ]
    return [Method(name, tuple(part), link) for name, part in zip(names, parts, strict=True)]


def settings_as_text(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings by dotted names, values as text; lists and tables as in settings files."""
    return {key: _as_text(value) for key, value in flatten(config).items()}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_as_text(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_as_text, value)) + "]"
    return str(value)


def axes_of(items: Sequence[Method], first: str = "") -> tuple[str, ...]:
    """What the methods can be drawn against, `first` before the others.

    Simulated time is there where some of them have it.  Where all do, an estimate over equal links would only confuse.
    """
    axes = [*X_AXES, CLOCK] if any(item.has_clock for item in items) else [*X_AXES]
    if all(item.has_clock for item in items):
        axes.remove(LINK)
    return tuple(dict.fromkeys([first, *axes] if first else axes))


def log_x(items: Sequence[Method], axis: str) -> bool:
    """Whether the methods' totals lie so far apart that the axis should be logarithmic."""
    ends = [end for item in items if (end := float(np.max(item.last(axis)))) > 0]
    return bool(ends) and max(ends) >= LOG_BYTES * min(ends)


def span(items: Sequence[Method], metric: str, started: bool = False) -> tuple[float, float] | None:
    """Least and greatest value of a metric worth showing: a run that blows up must not flatten the others.

    With `started` the start point is left out, which a logarithmic axis of bytes cannot show.
    """
    sound = [c for item in items if not item.diverged and (c := item.curve(metric))]
    broken = [c for item in items if item.diverged and (c := item.curve(metric))]
    curves = sound or broken
    if not curves:
        return None
    shown = [c.x["round"] > 0 if started and (c.x["round"] > 0).any() else slice(None) for c in curves]
    low = min(float(c.low[s].min()) for c, s in zip(curves, shown, strict=True))
    high = max(float(c.high[s].max()) for c, s in zip(curves, shown, strict=True))
    return low, high


def log_y(items: Sequence[Method], metric: str) -> bool:
    """Whether a metric's axis should be logarithmic: always for gaps to zero, by span for losses, never for shares."""
    limits = span(items, metric)
    if limits is None or metric in _SHARES or limits[0] <= 0 or not math.isfinite(limits[1]):
        return False
    return metric in ("gap", "objective", "stationarity") or limits[1] > LOG_SPAN * limits[0]


def lead_metric(items: Sequence[Method]) -> str:
    """The metric of the first panel: the gap to a known optimum, else accuracy, else the objective."""
    return next((key for key in ("gap", "accuracy") if any(item.curve(key) for item in items)), "objective")


def shown_metrics(items: Sequence[Method]) -> tuple[str, ...]:
    """The metrics that some method has, the two that matter most before the others."""
    first = (lead_metric(items), second_metric(items), "train_loss", "objective", "stationarity", "density")
    wanted = dict.fromkeys((*first, *(metric for metric in METRICS if metric not in ("accuracy", "gap", "f1"))))
    return tuple(metric for metric in wanted if any(item.curve(metric) for item in items))


def second_metric(items: Sequence[Method]) -> str:
    """The metric of the second panel: how well a known support is found, else the train loss."""
    return "f1" if any(item.curve("f1") for item in items) else "train_loss"
