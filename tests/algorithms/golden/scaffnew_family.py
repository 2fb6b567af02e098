"""Scaffnew and the methods that grew out of it, by hand, written as their authors write them: h_i, and p/γ."""

import numpy as np
import torch

from fedcef.algorithms import TAMUNA, CompressedScaffnew, FedComLoc, LoCoDL, Scaffnew
from fedcef.compressors import TopK
from fedcef.core.rng import round_key, uniform

from .by_hand import ALPHA, COMMON, ETA_G, LAM, Z0, K, grad, soft, top1

TOP1 = TopK(ratio=1 / 3)
PLAIN = {**COMMON, "server_lr": 1.0}
P, RHO, SCALING, MU = 0.45, 0.7, 0.6, 0.3


def local_end(i, z, h, steps=K, at=lambda x: x):
    """Where client i stands after so many steps along its gradient minus h."""
    x = z.copy()
    for _ in range(steps):
        x = x - ALPHA * (grad(i, at(x)) - h)
    return x


def steps_of_round(t):
    """The first step after which the coin falls: u < 1 - (1-p)^l; K at the latest."""
    u = float(uniform(round_key(0, t, torch.arange(2)).of_part(-1), 1))
    return next((step for step in range(1, K) if u < 1 - (1 - P) ** step), K)


def by_hand_scaffnew(rounds, p=1 / K, steps=lambda t: K):
    """ProxSkip as published: ψ is h and the constraint that all x_i are one."""
    z, h, s = Z0.copy(), np.zeros((2, 3)), ALPHA / p
    for t in range(rounds):
        x = np.array([local_end(i, z, h[i], steps(t)) for i in range(2)])
        z = soft((x - s * h).mean(0), s * LAM)
        h = h + (z - x) / s
    return z


def by_hand_longer_server_step(rounds):
    """A server step of η_g: its control variates add up to minus what the prox left."""
    z, e, v, beta = Z0.copy(), np.zeros((2, 3)), np.zeros(3), ALPHA * ETA_G * K
    for _ in range(rounds):
        moved = np.array([z - local_end(i, z, e[i] - v) for i in range(2)]) / (ALPHA * K)
        e = e + moved - moved.mean(0)
        y = z - beta * (moved.mean(0) - v)
        z = soft(y, beta * LAM)
        v = (y - z) / beta
    return z


def by_hand_compressed_scaffnew(rounds):
    """With all entries from everyone, and a server step of η_g."""
    z, h, beta = Z0.copy(), np.zeros((2, 3)), ALPHA * ETA_G * K
    for _ in range(rounds):
        x = np.array([local_end(i, z, h[i]) for i in range(2)])
        z = soft(z + ETA_G * (x.mean(0) - z) - beta * h.mean(0), beta * LAM)
        h = h + (z - x) / (ALPHA * K)
    return z


def by_hand_fedcomloc(rounds, variant):
    at, up, down = (top1 if variant == name else (lambda x: x) for name in ("local", "com", "global"))
    z, h, h_mean, s = Z0.copy(), np.zeros((2, 3)), np.zeros(3), ALPHA * K
    for _ in range(rounds):
        x = np.array([up(local_end(i, z, h[i], at=at)) for i in range(2)])
        whole = soft(x.mean(0) - s * h_mean, s * LAM)
        h_mean = h_mean + (whole - x.mean(0)) / s
        z = down(whole)
        h = h + (z - x) / s
    return z


def by_hand_locodl(rounds, compress=top1, rho=RHO, chi=SCALING):
    """In the authors' letters, p = 1/K; the prox is that of h in y."""
    x, u, y, v = np.tile(Z0, (2, 1)), np.zeros((2, 3)), Z0.copy(), np.zeros(3)
    for _ in range(rounds):
        for _ in range(K):
            x = np.array([x[i] - ALPHA * (grad(i, x[i]) - MU * x[i]) + ALPHA * u[i] for i in range(2)])
            y = soft(y - ALPHA * MU * y + ALPHA * v, ALPHA * LAM)
        d = np.array([compress(x[i] - y) for i in range(2)])
        d_bar = d.sum(0) / (2 * 2)
        x = (1 - rho) * x + rho * (y + d_bar)
        u = u + chi / (K * ALPHA) * (d_bar - d)
        y = y + rho * d_bar
        v = v + chi / (K * ALPHA) * d_bar
    return soft(y - ALPHA * MU * y + ALPHA * v, ALPHA * LAM)


CASES = {
    "scaffnew": (Scaffnew(**PLAIN), by_hand_scaffnew),
    "scaffnew at random": (
        Scaffnew(**PLAIN, probability=P),
        lambda rounds: by_hand_scaffnew(rounds, P, steps_of_round),
    ),
    "scaffnew with a server step": (Scaffnew(**COMMON), by_hand_longer_server_step),
    "compressed_scaffnew": (CompressedScaffnew(**COMMON), by_hand_compressed_scaffnew),
    "compressed_scaffnew at random": (
        CompressedScaffnew(**PLAIN, senders=2, probability=P),
        lambda rounds: by_hand_scaffnew(rounds, P, steps_of_round),
    ),
    "tamuna": (TAMUNA(**PLAIN, senders=2), by_hand_scaffnew),
    "fedcomloc": (FedComLoc(**PLAIN, compressor=TOP1), lambda rounds: by_hand_fedcomloc(rounds, "com")),
    "fedcomloc local": (
        FedComLoc(**PLAIN, compressor=TOP1, variant="local"),
        lambda rounds: by_hand_fedcomloc(rounds, "local"),
    ),
    "fedcomloc global": (
        FedComLoc(**PLAIN, compressor=TOP1, variant="global"),
        lambda rounds: by_hand_fedcomloc(rounds, "global"),
    ),
    "locodl": (
        LoCoDL(**{**COMMON, "server_lr": RHO}, compressor=TOP1, scaling=SCALING, shift=MU),
        by_hand_locodl,
    ),
}
