"""FedAvg with a server update of its own, FetchSGD and FedBuff by hand; any clients may take part in a round."""

import numpy as np
import torch

from fedcef.algorithms import FedAdagrad, FedAdam, FedAvgM, FedBuff, FedYogi, FetchSGD
from fedcef.algorithms.count_sketch import CountSketch

from .by_hand import ALPHA, BETA, COMMON, ETA_G, LAM, Z0, K, grad, soft, top1

MOMENTUM, DECAY, FLOOR = 0.7, 0.8, 0.05
BOTH = ((0, 1),)
ADAPTIVE = {"momentum": MOMENTUM, "floor": FLOOR}
SKETCH = {"rows": 3, "width": 0.7, "kept": 0.34}  # two columns for three entries: some meet


def mean_change(z, cohort, slope=0.0):
    ends = []
    for i in cohort:
        x = z.copy()
        for _ in range(K):
            x = x - ALPHA * (grad(i, x) + slope * np.sign(x))
        ends.append(x - z)
    return np.mean(ends, 0)


def by_hand_momentum(rounds, nesterov=False, cohorts=BOTH):
    z, m = Z0.copy(), np.zeros(3)
    for t in range(rounds):
        d = mean_change(z, cohorts[t % len(cohorts)])
        m = MOMENTUM * m + d
        z = soft(z + ETA_G * (d + MOMENTUM * m if nesterov else m), BETA / (1 - MOMENTUM) * LAM)
    return z


def by_hand_adaptive(rounds, rule, cohorts=BOTH):
    z, m, v = Z0.copy(), np.zeros(3), np.full(3, FLOOR**2)
    for t in range(rounds):
        d = mean_change(z, cohorts[t % len(cohorts)], slope=LAM)
        m = MOMENTUM * m + (1 - MOMENTUM) * d
        if rule == "adam":
            v = DECAY * v + (1 - DECAY) * d**2
        elif rule == "yogi":
            v = np.where(d**2 > v, v + (1 - DECAY) * d**2, v - (1 - DECAY) * d**2)
        else:
            v = v + d**2
        z = z + ETA_G * m / (np.sqrt(v) + FLOOR)
    return z


def by_hand_fetchsgd(rounds, removal, cohorts=BOTH):
    """The sketch is a table of signs here: `signs[r, c, j]` is ±1 where row r puts entry j into column c."""
    signs = CountSketch(3, 2, 3).of(torch.eye(3, dtype=torch.float64)).T.reshape(3, 2, 3).numpy()
    z, u, e = Z0.copy(), np.zeros((3, 2)), np.zeros((3, 2))
    for t in range(rounds):
        g = np.mean([grad(i, z) for i in cohorts[t % len(cohorts)]], 0)
        u = MOMENTUM * u + signs @ g
        e = e + BETA * u
        d = top1(np.median(np.einsum("rc,rcj->rj", e, signs), axis=0))
        if removal == "subtract":
            e = e - signs @ d
            z = soft(z - d, BETA / (1 - MOMENTUM) * LAM)
        else:
            hit = signs @ d != 0
            u, e = np.where(hit, 0, u), np.where(hit, 0, e)
            z = soft(z - d, BETA * LAM)
    return z


def by_hand_fedbuff(rounds, cohorts=BOTH):
    """With the model that each client holds, and the round in which it took it."""
    z, held, since = Z0.copy(), [Z0.copy(), Z0.copy()], [0, 0]
    for t in range(rounds):
        cohort = cohorts[t % len(cohorts)]
        changes = [mean_change(held[i], [i], slope=LAM) / np.sqrt(1 + t - since[i]) for i in cohort]
        for i in cohort:
            held[i], since[i] = z.copy(), t
        z = z + ETA_G * np.mean(changes, 0)
    return z


CASES = {
    "fedavgm": (FedAvgM(**COMMON, momentum=MOMENTUM), by_hand_momentum),
    "fedavgm nesterov": (
        FedAvgM(**COMMON, momentum=MOMENTUM, nesterov=True),
        lambda rounds, **options: by_hand_momentum(rounds, nesterov=True, **options),
    ),
    "fedadam": (
        FedAdam(**COMMON, **ADAPTIVE, decay=DECAY),
        lambda rounds, **options: by_hand_adaptive(rounds, "adam", **options),
    ),
    "fedyogi": (
        FedYogi(**COMMON, **ADAPTIVE, decay=DECAY),
        lambda rounds, **options: by_hand_adaptive(rounds, "yogi", **options),
    ),
    "fedadagrad": (
        FedAdagrad(**COMMON, **ADAPTIVE),
        lambda rounds, **options: by_hand_adaptive(rounds, "adagrad", **options),
    ),
    "fetchsgd": (
        FetchSGD(**COMMON, **SKETCH, momentum=MOMENTUM),
        lambda rounds, **options: by_hand_fetchsgd(rounds, "zero", **options),
    ),
    "fetchsgd subtracting": (
        FetchSGD(**COMMON, **SKETCH, momentum=MOMENTUM, removal="subtract"),
        lambda rounds, **options: by_hand_fetchsgd(rounds, "subtract", **options),
    ),
    "fedbuff": (FedBuff(**COMMON), by_hand_fedbuff),
}
