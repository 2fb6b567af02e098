"""The methods of the paper's own comparison, by hand."""

import numpy as np

from fedcef.algorithms import FedAvg, FedCanon, FedCEF, FedDA, Zhang
from fedcef.compressors import Identity, TopK

from .by_hand import ALPHA, BETA, COMMON, ETA, ETA_G, LAM, Z0, K, grad, soft, top1


def by_hand_fedcef(rounds, compress, eta):
    z, c = Z0.copy(), np.zeros(3)
    c_i, v_i = np.zeros((2, 3)), np.zeros((2, 3))
    for _ in range(rounds):
        delta = np.zeros((2, 3))
        for i in range(2):
            x_hat, x = z.copy(), z.copy()
            for k in range(K):
                x_hat = x_hat - ALPHA * (grad(i, x) + c - c_i[i])
                x = soft(x_hat, (k + 1) * ALPHA * LAM)
            v_i[i] = (1 - eta) * v_i[i] + eta * ((z - x_hat) / (ALPHA * K) + c_i[i] - c)
            delta[i] = compress(v_i[i] - c_i[i])
            c_i[i] += delta[i]
        c = c + delta.mean(0)
        z = soft(z - BETA * c, BETA * LAM)
    return z


def by_hand_zhang(rounds):
    z, correction = Z0.copy(), np.zeros((2, 3))
    for _ in range(rounds):
        last, g_sum = np.zeros((2, 3)), np.zeros((2, 3))
        for i in range(2):
            z_hat, x = z.copy(), z.copy()
            for k in range(K):
                g = grad(i, x)
                g_sum[i] += g
                z_hat = z_hat - ALPHA * (g + correction[i])
                x = soft(z_hat, (k + 1) * ALPHA * LAM)
            last[i] = z_hat
        x_bar = z + ETA_G * (last.mean(0) - z)
        correction = (z - x_bar) / BETA - g_sum / K
        z = soft(x_bar, BETA * LAM)
    return z


def by_hand_fedavg(rounds):
    z = Z0.copy()
    for _ in range(rounds):
        ends = []
        for i in range(2):
            x = z.copy()
            for _ in range(K):
                x = x - ALPHA * grad(i, x)
            ends.append(x)
        z = soft(z + ETA_G * (np.mean(ends, 0) - z), BETA * LAM)
    return z


def by_hand_fedda(rounds):
    y, elapsed = Z0.copy(), 0.0
    for _ in range(rounds):
        ends = []
        for i in range(2):
            y_i, e_i = y.copy(), elapsed
            for _ in range(K):
                y_i = y_i - ALPHA * grad(i, soft(y_i, e_i * LAM))
                e_i += ALPHA
            ends.append(y_i)
        y = y + ETA_G * (np.mean(ends, 0) - y)
        elapsed += BETA
    return soft(y, elapsed * LAM)


def by_hand_fedcanon(rounds):
    z, c, c_i = Z0.copy(), np.zeros(3), np.zeros((2, 3))
    for _ in range(rounds):
        new = np.zeros((2, 3))
        for i in range(2):
            x = z.copy()
            for _ in range(K):
                x = x - ALPHA * (grad(i, x) + c - c_i[i])
            new[i] = (z - x) / (ALPHA * K) + c_i[i] - c
        c_i = new
        c = c_i.mean(0)
        z = soft(z - BETA * c, BETA * LAM)
    return z


CASES = {
    "fedcef": (
        FedCEF(**COMMON, mixing=ETA, compressor=TopK(ratio=1 / 3)),
        lambda rounds: by_hand_fedcef(rounds, top1, ETA),
    ),
    "fedcef dense": (
        FedCEF(**COMMON, mixing=ETA, compressor=TopK(ratio=1 / 3), downlink="dense"),
        lambda rounds: by_hand_fedcef(rounds, top1, ETA),
    ),
    "fedcef uncompressed": (
        FedCEF(**COMMON, compressor=Identity()),
        lambda rounds: by_hand_fedcef(rounds, lambda x: x, 1.0),
    ),
    "zhang": (Zhang(**COMMON), by_hand_zhang),
    "fedavg": (FedAvg(**COMMON), by_hand_fedavg),
    "fedda": (FedDA(**COMMON), by_hand_fedda),
    "fedcanon": (FedCanon(**COMMON), by_hand_fedcanon),
}
