"""Data parallelism, DiLoCo, SparseLoCo and DeMo by hand."""

import numpy as np

from fedcef.algorithms import DataParallel, DeMo, DiLoCo, SparseLoCo
from fedcef.compressors import TopK
from fedcef.optimizers import AdamW

from .by_hand import ALPHA, BETA, COMMON, ETA_G, LAM, Z0, K, grad, soft, top1

B1, B2, EPS, DECAY, MOMENTUM = 0.8, 0.9, 1e-3, 0.1, 0.7
INNER = AdamW(momentum=B1, decay=B2, eps=EPS, weight_decay=DECAY, memory="client")


class Clients:
    """AdamW on both clients, whose memory goes on from round to round."""

    def __init__(self):
        self.m, self.v, self.n = np.zeros((2, 3)), np.zeros((2, 3)), 0

    def change(self, z):
        """How far each client gets, with subgradients of h."""
        ends = []
        for i in range(2):
            x, n = z.copy(), self.n
            for _ in range(K):
                g, n = grad(i, x) + LAM * np.sign(x), n + 1
                self.m[i] = B1 * self.m[i] + (1 - B1) * g
                self.v[i] = B2 * self.v[i] + (1 - B2) * g**2
                direction = self.m[i] / (1 - B1**n) / (np.sqrt(self.v[i] / (1 - B2**n)) + EPS)
                x = x - ALPHA * (direction + DECAY * x)
            ends.append(x - z)
        self.n += K
        return np.array(ends)


def by_hand_diloco(rounds):
    clients, z, m = Clients(), Z0.copy(), np.zeros(3)
    for _ in range(rounds):
        d = clients.change(z).mean(0)
        m = MOMENTUM * m + d
        z = z + ETA_G * (d + MOMENTUM * m)
    return z


def by_hand_sparseloco(rounds):
    clients, z, e = Clients(), Z0.copy(), np.zeros((2, 3))
    for _ in range(rounds):
        e = 0.6 * e + clients.change(z)
        sent = np.array([top1(row) for row in e])
        e = e - sent
        z = z + ETA_G * sent.mean(0)
    return z


def by_hand_data_parallel(rounds):
    z, m, v = Z0.copy(), np.zeros(3), np.zeros(3)
    for n in range(1, rounds + 1):
        g = (grad(0, z) + grad(1, z)) / 2  # exact, so that the mean of K of them is one
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        scale = np.sqrt(v / (1 - B2**n)) + EPS
        z = soft(z - BETA * (m / (1 - B1**n) / scale + DECAY * z), BETA * LAM / scale)
    return z


def by_hand_demo(rounds, sign, senders):
    z, m = Z0.copy(), np.zeros((2, 3))
    for _ in range(rounds):
        m = 0.6 * m + np.array([grad(i, z) + LAM * np.sign(z) for i in range(2)])
        sent = np.array([top1(row) for row in m])
        m = m - sent
        q = sent.sum(0) / np.maximum((sent != 0).sum(0), 1) if senders else sent.mean(0)
        z = z - BETA * ((np.sign(q) if sign else q) + DECAY * z)
    return z


LOCAL = {**COMMON, "local_update": INNER}
KEPT = {"compressor": TopK(ratio=0.34)}
DEMO = {**COMMON, **KEPT, "momentum_decay": 0.6, "weight_decay": DECAY}
CASES = {
    "data_parallel": (DataParallel(**LOCAL), by_hand_data_parallel),
    "diloco": (DiLoCo(**LOCAL, momentum=MOMENTUM), by_hand_diloco),
    "sparseloco": (SparseLoCo(**LOCAL, **KEPT, error_decay=0.6), by_hand_sparseloco),
    "demo": (DeMo(**DEMO), lambda rounds: by_hand_demo(rounds, sign=True, senders=True)),
    "demo without signs": (DeMo(**DEMO, sign=False), lambda rounds: by_hand_demo(rounds, sign=False, senders=True)),
    "demo over all": (
        DeMo(**DEMO, sign=False, average="all"),
        lambda rounds: by_hand_demo(rounds, sign=False, senders=False),
    ),
}
