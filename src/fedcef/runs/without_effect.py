"""Options that were given and have no effect beside the others, or not the whole one, told when a run begins.

They are not refused: a sweep over downlinks or cohorts leaves some of them idle, and folders of earlier runs, whose
settings name every option, must open as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from fedcef.algorithms import FedCEF
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import Auto
from fedcef.core.training import Training


def without_effect(algorithm: Algorithm, training: Training) -> tuple[str, ...]:
    """A sentence for each option that is not at its default and changes nothing, or too little.

    The method is the simulation's.
    """
    idle = dict(_of_fedcef(algorithm)) if isinstance(algorithm, FedCEF) else {}
    defaults = {f.name: f.default for f in fields(algorithm)}
    found = [
        f"algorithm.{name} has no effect {why}."
        for name, why in idle.items()
        if getattr(algorithm, name) != defaults[name]
    ]
    if training.budget_tilt and not training.budget and not isinstance(algorithm.compressor, Auto):
        found.append("budget_tilt has no effect without a budget; give budget, or leave it out.")
    down = getattr(algorithm, "down_compressor", None)
    if isinstance(down, Auto) and not isinstance(algorithm.compressor, Auto):
        found.append(
            "down_compressor.name = 'auto' chooses nothing by itself and is Top-1%; with compressor.name = 'auto' both "
            "are chosen."
        )
    steps, warmup = training.rounds * algorithm.local_steps, getattr(algorithm.local_update, "warmup", 0)
    if warmup > steps:
        found.append(
            f"local_update.warmup is {warmup} local steps and the run has {steps}, so that the step size rises to "
            f"{steps / warmup:.3g} of local_lr; shorten it."
        )
    return tuple(found)


def _of_fedcef(algorithm: FedCEF) -> Iterator[tuple[str, str]]:
    """FedCEF's options that are idle as the others are, and why."""
    if algorithm.share == 1:
        why = "where all clients take part in every round; give clients_per_round, or leave it out"
        yield from (("participation", why), ("own_part", why))
    elif algorithm.participation != "shared":
        yield "own_part", "with algorithm.participation = 'averaged'; take 'shared', or leave it out"
    if algorithm.tells_changes:
        yield "drift_weight", "with algorithm.control = 'change', which corrects no drift; leave it out"
    elif algorithm.is_shared and not algorithm.own_part:
        yield "drift_weight", "with algorithm.own_part = 0, where all clients' controls are c; leave it out"
    if algorithm.metric == "plain":
        why = "with algorithm.metric = 'plain'; take 'adam', or leave it out"
        yield from (("metric_memory", why), ("metric_floor", why))
    if algorithm.downlink != "snapshot":
        yield "model_bits", f"with algorithm.downlink = {algorithm.downlink!r}; take 'snapshot', or leave it out"
