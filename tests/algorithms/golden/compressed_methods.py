"""Methods for smooth problems with compression, by hand, written as their authors write them."""

import numpy as np

from fedcef.algorithms import (
    EF14,
    EF21,
    EF21BC,
    EF21SGDM,
    SCAFCOM,
    SCALLION,
    EControl,
    EF21Prox,
    FedCOMGATE,
    FedEF,
    FedPAQ,
    Qsparse,
)
from fedcef.compressors import Identity, TopK

from .by_hand import ALPHA, BETA, COMMON, ETA, ETA_G, LAM, Z0, K, grad, soft, top1

FEEDBACK, SCALING = 0.2, 0.6
TOP1 = TopK(ratio=1 / 3)


def local_end(i, z, correction):
    """Where client i stands after K steps along its gradient plus the correction."""
    y = z.copy()
    for _ in range(K):
        y = y - ALPHA * (grad(i, y) + correction)
    return y


def by_hand_scallion(rounds):
    z, c, c_i = Z0.copy(), np.zeros(3), np.zeros((2, 3))
    for _ in range(rounds):
        d = np.zeros((2, 3))
        for i in range(2):
            y = local_end(i, z, c - c_i[i])
            d[i] = top1(SCALING * ((z - y) / (ALPHA * K) - c))
        c_i = c_i + d
        z = soft(z - ETA_G * ALPHA * K * (c + d.mean(0)), BETA * LAM)
        c = c + d.mean(0)
    return z


def by_hand_scafcom(rounds, compress, eta):
    z, c, c_i, v_i = Z0.copy(), np.zeros(3), np.zeros((2, 3)), np.zeros((2, 3))
    for _ in range(rounds):
        d = np.zeros((2, 3))
        for i in range(2):
            y = local_end(i, z, c - c_i[i])
            v_i[i] = (1 - eta) * v_i[i] + eta * ((z - y) / (ALPHA * K) + c_i[i] - c)
            d[i] = compress(v_i[i] - c_i[i])
        c_i = c_i + d
        z = soft(z - ETA_G * ALPHA * K * (c + d.mean(0)), BETA * LAM)
        c = c + d.mean(0)
    return z


def by_hand_ef14(rounds):
    z, e_i = Z0.copy(), np.zeros((2, 3))
    for _ in range(rounds):
        d = np.zeros((2, 3))
        for i in range(2):
            d[i] = top1(e_i[i] + BETA * grad(i, z))
            e_i[i] += BETA * grad(i, z) - d[i]
        z = soft(z - d.mean(0), BETA * LAM)
    return z


def by_hand_ef21(rounds):
    """In the authors' order: the step first, with g_i = C(∇f_i) to start from."""
    z, g_i = Z0.copy(), np.array([top1(grad(i, Z0)) for i in range(2)])
    for _ in range(rounds):
        z = soft(z - BETA * g_i.mean(0), BETA * LAM)
        for i in range(2):
            g_i[i] += top1(grad(i, z) - g_i[i])
    return z


def by_hand_ef21_subgradient(rounds):
    """h is a part of every f_i, and there is no prox."""
    z, g_i = Z0.copy(), np.zeros((2, 3))
    for _ in range(rounds):
        for i in range(2):
            g_i[i] += top1(grad(i, z) + LAM * np.sign(z) - g_i[i])
        z = z - BETA * g_i.mean(0)
    return z


def by_hand_ef21_sgdm(rounds):
    z, g_i, v_i = Z0.copy(), np.zeros((2, 3)), np.zeros((2, 3))
    for _ in range(rounds):
        for i in range(2):
            v_i[i] = (1 - ETA) * v_i[i] + ETA * grad(i, z)
            g_i[i] += top1(v_i[i] - g_i[i])
        z = soft(z - BETA * g_i.mean(0), BETA * LAM)
    return z


def by_hand_ef21_bc(rounds):
    z, g, g_i = Z0.copy(), np.zeros(3), np.zeros((2, 3))
    for _ in range(rounds):
        for i in range(2):
            g_i[i] += top1(grad(i, z) - g_i[i])
        g = g + top1(g_i.mean(0) - g)
        z = soft(z - BETA * g, BETA * LAM)
    return z


def by_hand_econtrol(rounds):
    z, e_i, h_i = Z0.copy(), np.zeros((2, 3)), np.zeros((2, 3))
    for _ in range(rounds):
        for i in range(2):
            g = grad(i, z)
            d = top1(FEEDBACK * e_i[i] + g - h_i[i])
            h_i[i] = h_i[i] + d
            e_i[i] = e_i[i] + g - h_i[i]
        z = soft(z - BETA * h_i.mean(0), BETA * LAM)
    return z


def by_hand_memory(rounds, compress):
    """Qsparse-local-SGD, which is Fed-EF."""
    z, e_i = Z0.copy(), np.zeros((2, 3))
    for _ in range(rounds):
        d = np.zeros((2, 3))
        for i in range(2):
            y = local_end(i, z, 0)
            d[i] = compress(e_i[i] + z - y)
            e_i[i] += z - y - d[i]
        z = soft(z - ETA_G * d.mean(0), BETA * LAM)
    return z


def by_hand_fedpaq(rounds):
    z = Z0.copy()
    for _ in range(rounds):
        changes = [top1(local_end(i, z, 0) - z) for i in range(2)]
        z = soft(z + ETA_G * np.mean(changes, 0), BETA * LAM)
    return z


def by_hand_fedcomgate(rounds):
    z, delta_i = Z0.copy(), np.zeros((2, 3))
    for _ in range(rounds):
        d = np.array([top1((z - local_end(i, z, -delta_i[i])) / ALPHA) for i in range(2)])
        delta_i = delta_i + (d - d.mean(0)) / K
        z = soft(z - ETA_G * ALPHA * d.mean(0), BETA * LAM)
    return z


CASES = {
    "scallion": (SCALLION(**COMMON, scaling=SCALING, compressor=TOP1), by_hand_scallion),
    "scafcom": (SCAFCOM(**COMMON, mixing=ETA, compressor=TOP1), lambda rounds: by_hand_scafcom(rounds, top1, ETA)),
    "scafcom uncompressed": (
        SCAFCOM(**COMMON, mixing=1.0, compressor=Identity()),
        lambda rounds: by_hand_scafcom(rounds, lambda x: x, 1.0),
    ),
    "ef14": (EF14(**COMMON, compressor=TOP1), by_hand_ef14),
    "ef21": (EF21(**COMMON, compressor=TOP1), by_hand_ef21),
    "ef21 subgradient": (EF21(**COMMON, composite="subgradient", compressor=TOP1), by_hand_ef21_subgradient),
    "ef21_prox": (EF21Prox(**COMMON, compressor=TOP1), by_hand_ef21),
    "ef21_sgdm": (EF21SGDM(**COMMON, mixing=ETA, compressor=TOP1), by_hand_ef21_sgdm),
    "ef21_bc": (EF21BC(**COMMON, compressor=TOP1, down_ratio=1 / 3), by_hand_ef21_bc),
    "econtrol": (EControl(**COMMON, feedback=FEEDBACK, compressor=TOP1), by_hand_econtrol),
    "qsparse": (Qsparse(**COMMON, compressor=TOP1), lambda rounds: by_hand_memory(rounds, top1)),
    "fed_ef": (FedEF(**COMMON, compressor=TOP1), lambda rounds: by_hand_memory(rounds, top1)),
    "fed_ef uncompressed": (FedEF(**COMMON), lambda rounds: by_hand_memory(rounds, lambda x: x)),
    "fedpaq": (FedPAQ(**COMMON, compressor=TOP1), by_hand_fedpaq),
    "fedcomgate": (FedCOMGATE(**COMMON, compressor=TOP1), by_hand_fedcomgate),
}
