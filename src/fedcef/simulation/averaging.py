"""The running mean of the rounds' models.

With steps of constant length the model of a round keeps the noise of its last cohorts; a mean over the last rounds has
less of it.  It is nobody's starting point, so training is what it is without, and it costs no byte:

    mean ← a_t mean + (1 - a_t) z,   a_t = min(a, (1 + t)/(10 + t))

so that the first models are soon forgotten.  An entry that is zero in the last model is zero in the trained one: a mean
would keep traces of what a regulariser has long removed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.algorithms.statistics import STATISTICS


def started(z0: Tensor, statistics: Tensor | None = None) -> State:
    """The mean before the first round; of running statistics, too, where these belong to the model."""
    return {name: point.clone() for name, point in _points(z0, statistics).items()}


def running_mean(
    average: State, z: Tensor, round_: Tensor, averaging: float, statistics: Tensor | None = None
) -> State:
    """The mean after a round (counted from 0) that led to z and to these statistics; nothing where there is none."""
    if not average:
        return {}
    number = round_.to(torch.float64)
    worth = ((1 + number) / (10 + number)).clamp(max=averaging).to(z.dtype)
    return {name: point + worth * (average[name] - point) for name, point in _points(z, statistics).items()}


def trained_model(average: State, z: Tensor) -> Tensor:
    """The model that is evaluated and saved after a round that led to z."""
    return torch.where(z == 0, z, average["z"]) if average else z


def trained_statistics(average: State, replica: State) -> Tensor | None:
    """The running statistics that go with that model; None where there are none that belong to it."""
    return average.get(STATISTICS, replica.get(STATISTICS))


def _points(z: Tensor, statistics: Tensor | None) -> State:
    return {"z": z} if statistics is None else {"z": z, STATISTICS: statistics}
