"""What the rounds by hand share: two clients with three parameters, exact gradients, plain NumPy."""

import numpy as np
import torch

from fedcef.regularizers import L1

from ..setting import Quadratics

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
