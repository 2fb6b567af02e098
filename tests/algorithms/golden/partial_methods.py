"""Methods for some of the clients, by hand, written as their authors write them; `cohorts` says who takes part."""

import numpy as np

from fedcef.algorithms import DASHAPP, EF21PP
from fedcef.compressors import TopK

from .by_hand import BETA, COMMON, LAM, Z0, grad, soft, top1

TOP1 = TopK(ratio=1 / 3)
A_OVER_P, B_OVER_P = 0.7, 0.6
EVERYONE = [[0, 1]] * 5


def by_hand_ef21_pp(rounds, cohorts=EVERYONE):
    """The mean over all clients, with c_i = 0 for those who are away."""
    z, g_i = Z0.copy(), np.zeros((2, 3))
    for cohort in cohorts[:rounds]:
        c = np.zeros((2, 3))
        for i in cohort:
            c[i] = top1(grad(i, z) - g_i[i])
        g_i = g_i + c
        z = soft(z - BETA * g_i.mean(0), BETA * LAM)
    return z


def by_hand_dasha_pp(rounds, cohorts=EVERYONE, a_over_p=None, b_over_p=None):
    """In the authors' order and with their a, b and p_a, from g_i = h_i = 0; the first round has no step behind it."""
    x, g_i, h_i = Z0.copy(), np.zeros((2, 3)), np.zeros((2, 3))
    for t, cohort in enumerate(cohorts[:rounds]):
        old, x = x, soft(x - BETA * g_i.mean(0), BETA * LAM) if t else x
        p = len(cohort) / 2 if t else 1.0
        a, b = (a_over_p or 1.0) * p, b_over_p * p if b_over_p else p / (2 - p)
        for i in cohort:
            k = grad(i, x) - grad(i, old) - b * (h_i[i] - grad(i, old))
            m = top1(k / p - a / p * (g_i[i] - h_i[i]))
            h_i[i] = h_i[i] + k / p
            g_i[i] = g_i[i] + m
    return soft(x - BETA * g_i.mean(0), BETA * LAM)


MOMENTA = {"compression_momentum": A_OVER_P, "gradient_momentum": B_OVER_P}

CASES = {
    "ef21_pp": (EF21PP(**COMMON, compressor=TOP1), by_hand_ef21_pp),
    "dasha_pp": (DASHAPP(**COMMON, compressor=TOP1), by_hand_dasha_pp),
    "dasha_pp momenta": (
        DASHAPP(**COMMON, compressor=TOP1, **MOMENTA),
        lambda rounds, cohorts=EVERYONE: by_hand_dasha_pp(rounds, cohorts, A_OVER_P, B_OVER_P),
    ),
}
