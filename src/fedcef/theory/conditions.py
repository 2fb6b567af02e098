"""What Theorem 1 asks of a run, condition by condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from fedcef.algorithms import FedCEF
from fedcef.compressors import Auto
from fedcef.core.parts import described
from fedcef.core.schedules import SCHEDULES
from fedcef.optimizers import LOCAL_UPDATES
from fedcef.problems.problem import Problem
from fedcef.runs.settings import Settings
from fedcef.theory.theorem import Setting

_KINKED = (nn.ReLU, nn.LeakyReLU, nn.MaxPool2d)
"""Layers at whose kinks a gradient jumps, so that there is no L."""


@dataclass(frozen=True)
class Condition:
    """One thing that the theorem asks for, and how it stands."""

    what: str
    value: str
    limit: str
    met: bool


def premises(config: Settings, problem: Problem, algorithm: FedCEF, q2: float | None) -> list[Condition]:
    """What the theorem takes for granted about the problem and the method."""
    h, everyone = problem.regularizer, problem.num_clients
    subgradient, cohort = h.bounded_subgradient(problem.dim), config.clients_per_round or everyone
    schedules = sorted({described(s, SCHEDULES)["name"] for s in (config.local_schedule, config.server_schedule)})
    kinks = sorted({type(m).__name__ for m in problem.model.modules() if isinstance(m, _KINKED)})
    biases = {"clipped": config.clip_norm > 0, "augmented": problem.augment is not None}
    update = described(algorithm.local_update, LOCAL_UPDATES)["name"]
    departures = {
        f"{algorithm.downlink} downlink": algorithm.downlink not in ("increment", "dense"),
        f"local_update {update}": update != "sgd",
        f"control {algorithm.control}": algorithm.control != "gradient",
        f"metric {algorithm.metric}": algorithm.metric != "plain",
        f"drift_weight {algorithm.drift_weight:g}": algorithm.drift_weight != 1,
        "budget": config.budget > 0,
        "compressor auto": isinstance(algorithm.compressor, Auto),
        "privacy": config.privacy is not None,
        "aggregation": not config.aggregation.is_mean(everyone),
        "attack": config.attack is not None,
    }
    return [
        _without("every f_i is smooth", kinks),
        Condition("h is convex, ρ", f"{h.weak_convexity:.3g}", "0", h.weak_convexity == 0),
        Condition("|h'| is bounded, B_h", _number(subgradient), "< ∞", subgradient is not None),
        Condition("C is a contraction, q²", _number(q2), "< 1", q2 is not None and q2 < 1),
        Condition("all clients in every round", f"{cohort}", f"{everyone}", cohort == everyone),
        Condition("all clients count alike", config.weighting, "uniform", config.weighting == "uniform"),
        Condition("steps stay as long", ", ".join(schedules), "constant", schedules == ["constant"]),
        _without("gradients are unbiased", [name for name, found in biases.items() if found]),
        _without("Algorithm 1 as it is", [name for name, found in departures.items() if found]),
    ]


def step_sizes(setting: Setting | None) -> list[Condition]:
    """The two inequalities of the theorem."""
    if setting is None:
        return []
    step, most = setting.step, setting.largest_step
    rate, least = setting.server_lr, setting.least_server_lr
    return [
        Condition("β ≤ min(η², (1-q)²)/(25L)", f"{step:.4g}", f"{most:.4g}", step <= most),
        Condition("η_g ≥ √(16(1-q)² + 161η²)/(5η(1-q))", f"{rate:.4g}", f"{least:.4g}", rate >= least),
    ]


def _without(what: str, found: Sequence[str]) -> Condition:
    """A condition that is broken by what was found."""
    return Condition(what, ", ".join(found) or "yes", "yes", not found)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
