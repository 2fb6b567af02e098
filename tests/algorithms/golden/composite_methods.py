"""FedMiD, the dual averaging of Bao et al., FedDR and FedADMM, by hand."""

import numpy as np

from fedcef.algorithms import CFedDA, FastFedDA, FedADMM, FedDR, FedMiD

from .by_hand import ALPHA, BETA, COMMON, ETA_G, LAM, Z0, K, grad, soft

MU, GAMMA = 0.3, 4.0
RHO, PENALTY_STEP = 1.7, 0.8


def by_hand_fedmid(rounds, server_threshold):
    z = Z0.copy()
    for _ in range(rounds):
        ends = []
        for i in range(2):
            x = z.copy()
            for _ in range(K):
                x = soft(x - ALPHA * grad(i, x), ALPHA * LAM)
            ends.append(x)
        z = soft(z + ETA_G * (np.mean(ends, 0) - z), server_threshold)
    return z


def by_hand_fast_fedda(rounds):
    """In the form of the authors' code, with averages; the K-th local point is not added up."""

    def primal(g, w_sum, n):
        a = g / n - (MU / 2) * w_sum / n - GAMMA * Z0 / n
        b = MU / 2 + GAMMA / n
        return soft(-a / b, LAM / b)

    w, w_sum, g = Z0.copy(), Z0.copy(), np.zeros(3)
    for r in range(1, rounds + 1):
        g_i, w_sum_i = np.stack([g, g]), np.stack([w_sum, w_sum])
        for i in range(2):
            w_i = w.copy()
            for k in range(1, K + 1):
                g_i[i] += grad(i, w_i)
                if k < K:
                    w_i = primal(g_i[i], w_sum_i[i], (r - 1) * K + k)
                    w_sum_i[i] += w_i
        g, w_sum = g_i.mean(0), w_sum_i.mean(0)
        w = primal(g, w_sum, r * K)
        w_sum = w_sum + w
    return w


def by_hand_c_fedda(rounds):
    w, w_sum, g = Z0.copy(), Z0.copy(), np.zeros(3)
    for r in range(1, rounds + 1):

        def primal(g, w_sum=w_sum, r=r):
            a = g / (r * K) - (MU / 2) * w_sum / r - GAMMA * Z0 / (r * K)
            b = MU / 2 + GAMMA / (r * K)
            return soft(-a / b, LAM / b)

        g_i = np.stack([g, g])
        for i in range(2):
            w_i = w.copy()
            for _ in range(K):
                g_i[i] += grad(i, w_i)
                w_i = primal(g_i[i])
        g = g_i.mean(0)
        w = primal(g)
        w_sum = w_sum + w
    return w


def by_hand_feddr(rounds, start):
    """The paper's initialisation, then its rounds; the server keeps all x̂_i and averages them."""

    def solve(i, x, y):
        for _ in range(K):
            x = x - ALPHA * (grad(i, x) + (x - y) / PENALTY_STEP)
        return x

    y = np.stack([Z0, Z0])
    x = np.stack([solve(i, Z0, y[i]) for i in range(2)])
    z = soft((2 * x - y).mean(0), PENALTY_STEP * LAM)
    for _ in range(rounds - 1):
        for i in range(2):
            y[i] = y[i] + RHO * (z - x[i])
            x[i] = solve(i, x[i] if start == "own" else z, y[i])
        z = soft((2 * x - y).mean(0), PENALTY_STEP * LAM)
    return z


def by_hand_fedadmm(rounds, start):
    z, x, u = Z0.copy(), np.stack([Z0, Z0]), np.zeros((2, 3))
    for _ in range(rounds):
        for i in range(2):
            x_i = x[i] if start == "own" else z
            for _ in range(K):
                x_i = x_i - ALPHA * (grad(i, x_i) + u[i] + (x_i - z) / PENALTY_STEP)
            x[i] = x_i
            u[i] = u[i] + (x_i - z) / PENALTY_STEP
        z = soft((x + PENALTY_STEP * u).mean(0), PENALTY_STEP * LAM)
    return z


_DUAL = {**COMMON, "strong_convexity": MU, "anchor_weight": GAMMA}
_PENALTY = {**COMMON, "penalty_step": PENALTY_STEP}

CASES = {
    "fedmid": (FedMiD(**COMMON), lambda rounds: by_hand_fedmid(rounds, BETA * LAM)),
    "fedmid no server prox": (FedMiD(**COMMON, server_prox="none"), lambda rounds: by_hand_fedmid(rounds, 0.0)),
    "fast_fedda": (FastFedDA(**_DUAL), by_hand_fast_fedda),
    "c_fedda": (CFedDA(**_DUAL), by_hand_c_fedda),
    "feddr": (FedDR(**_PENALTY, relaxation=RHO), lambda rounds: by_hand_feddr(rounds, "own")),
    "feddr from z": (FedDR(**_PENALTY, relaxation=RHO, start="server"), lambda rounds: by_hand_feddr(rounds, "server")),
    "fedadmm": (FedADMM(**_PENALTY), lambda rounds: by_hand_fedadmm(rounds, "own")),
    "fedadmm from z": (FedADMM(**_PENALTY, start="server"), lambda rounds: by_hand_fedadmm(rounds, "server")),
}
