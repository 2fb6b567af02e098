"""Methods for smooth problems, with the proximal step on the server, by hand."""

import numpy as np

from fedcef.algorithms import SCAFFOLD, FedDC, FedDyn, FedPD, FedProx

from .by_hand import ALPHA, BETA, COMMON, ETA_G, LAM, Z0, K, grad, soft

MU = 0.8


def by_hand_fedprox(rounds):
    z = Z0.copy()
    for _ in range(rounds):
        ends = []
        for i in range(2):
            x = z.copy()
            for _ in range(K):
                x = x - ALPHA * (grad(i, x) + MU * (x - z))
            ends.append(x)
        z = soft(z + ETA_G * (np.mean(ends, 0) - z), BETA * LAM)
    return z


def by_hand_scaffold(rounds, option):
    z, c, c_i = Z0.copy(), np.zeros(3), np.zeros((2, 3))
    for _ in range(rounds):
        ends, new = np.zeros((2, 3)), np.zeros((2, 3))
        for i in range(2):
            x = z.copy()
            for _ in range(K):
                x = x - ALPHA * (grad(i, x) - c_i[i] + c)
            ends[i] = x
            new[i] = grad(i, z) if option == "I" else c_i[i] - c + (z - x) / (K * ALPHA)
        c = c + (new - c_i).mean(0)
        c_i = new
        z = soft(z + ETA_G * (ends.mean(0) - z), BETA * LAM)
    return z


def by_hand_feddyn(rounds):
    """In the authors' own form: memories m_i = -g_i/μ, and z = mean x + mean m_i."""
    z, m = Z0.copy(), np.zeros((2, 3))
    for _ in range(rounds):
        ends = np.zeros((2, 3))
        for i in range(2):
            x = z.copy()
            for _ in range(K):
                x = x - ALPHA * (grad(i, x) + MU * (x - z + m[i]))
            ends[i] = x
            m[i] += x - z
        theta = ends.mean(0) + m.mean(0)
        z = soft(z + ETA_G * (theta - z), ETA_G / MU * LAM)
    return z


def by_hand_fedpd(rounds, start):
    z, x, dual = Z0.copy(), np.array([Z0, Z0]), np.zeros((2, 3))
    for _ in range(rounds):
        copies = np.zeros((2, 3))
        for i in range(2):
            y = x[i].copy() if start == "own" else z.copy()
            for _ in range(K):
                y = y - ALPHA * (grad(i, y) + dual[i] + MU * (y - z))
            x[i] = y
            dual[i] += MU * (y - z)
            copies[i] = y + dual[i] / MU
        z = soft(z + ETA_G * (copies.mean(0) - z), ETA_G / MU * LAM)
    return z


def by_hand_feddc(rounds):
    z, g, g_i, drift = Z0.copy(), np.zeros(3), np.zeros((2, 3)), np.zeros((2, 3))
    for _ in range(rounds):
        ends, new = np.zeros((2, 3)), np.zeros((2, 3))
        for i in range(2):
            x = z.copy()
            for _ in range(K):
                x = x - ALPHA * (grad(i, x) + MU * (x + drift[i] - z) + g - g_i[i])
            ends[i] = x
            new[i] = g_i[i] - g + (z - x) / (K * ALPHA)
            drift[i] += x - z
        g = g + (new - g_i).mean(0)
        g_i = new
        theta = ends.mean(0) + drift.mean(0)
        z = soft(z + ETA_G * (theta - z), ETA_G / MU * LAM)
    return z


CASES = {
    "fedprox": (FedProx(**COMMON, proximal_weight=MU), by_hand_fedprox),
    "scaffold I": (SCAFFOLD(**COMMON, option="I"), lambda rounds: by_hand_scaffold(rounds, "I")),
    "scaffold II": (SCAFFOLD(**COMMON, option="II"), lambda rounds: by_hand_scaffold(rounds, "II")),
    "feddyn": (FedDyn(**COMMON, penalty=MU), by_hand_feddyn),
    "fedpd": (FedPD(**COMMON, penalty_step=1 / MU), lambda rounds: by_hand_fedpd(rounds, "own")),
    "fedpd from z": (
        FedPD(**COMMON, penalty_step=1 / MU, start="server"),
        lambda rounds: by_hand_fedpd(rounds, "server"),
    ),
    "feddc": (FedDC(**COMMON, penalty=MU), by_hand_feddc),
}
