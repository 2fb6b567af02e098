"""Two rounds of every method by hand: plain NumPy beside the code, on two clients and three parameters."""

import numpy as np
import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedAvg, FedCanon, FedCEF, FedDA, Zhang
from fedcef.compressors import Identity, TopK
from fedcef.regularizers import L1

from .setting import Quadratics, simulate

A = np.array([[[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.5]], [[1.0, 0.0, 0.2], [0.0, 0.5, 0.0], [0.2, 0.0, 1.5]]])
B = np.array([[1.0, -0.5, 0.3], [-0.2, 0.7, 1.1]])
Z0 = np.array([-1.0, 0.0, 1.0])
ALPHA, ETA_G, K, LAM, ETA = 0.1, 1.5, 3, 0.05, 0.4
BETA = ALPHA * ETA_G * K
CLIENTS = Quadratics(torch.from_numpy(A), torch.from_numpy(B))
COMMON = {"local_lr": ALPHA, "server_lr": ETA_G, "local_steps": K, "regularizer": L1(LAM)}


def grad(i, x):
    return A[i] @ x - B[i]


def soft(x, t):
    return np.sign(x) * np.maximum(np.abs(x) - t, 0)


def top1(x):
    kept = np.zeros_like(x)
    j = np.argmax(np.abs(x))
    kept[j] = x[j]
    return kept


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


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("case", CASES)
def test_rounds_are_those_done_by_hand(case, rounds):
    algorithm, by_hand = CASES[case]
    points = simulate(algorithm, CLIENTS, rounds).points
    np.testing.assert_allclose(points[-1].numpy(), by_hand(rounds), rtol=0, atol=1e-14)


def test_one_round_of_fedcef_in_numbers():
    """K = 1, one parameter, no regulariser: v = η·g, Δ = v, c = mean Δ, z = z0 - β c."""
    clients = Quadratics(torch.tensor([[[2.0]], [[4.0]]]), torch.tensor([[1.0], [0.0]]))
    algorithm = FedCEF(local_lr=0.5, server_lr=1.0, local_steps=1, mixing=0.5)
    # z0 = -1: gradients -3 and -4; c = -(1.5 + 2)/2 = -1.75; z = -1 + 0.5 * 1.75
    assert simulate(algorithm, clients, 1).points[0].item() == -0.125


def test_every_registered_method_has_a_golden_test():
    assert {type(algorithm) for algorithm, _ in CASES.values()} == set(ALGORITHMS.values())
