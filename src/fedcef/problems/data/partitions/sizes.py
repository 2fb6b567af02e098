"""Clients that differ in how many samples they have: lognormal, zipf; their labels are alike, or skewed too.

A size is n_i = max(min_size, c·w_i), rounded, with c such that they add up to all samples: sizes follow the weights w_i
wherever these ask for more than the least.  Weights are

    lognormal   w_i = exp(sigma·z_i), z_i ~ N(0, 1)
    zipf        w_i = r_i^(-exponent), where r is a random order of 1..N

Labels are dealt to given sizes in one of two ways: `iid`, a random order cut into these sizes; `dirichlet`, client i
prefers class k by q_ik ∝ m_k·d_ik with d_i ~ Dir(alpha), where m_k samples are of class k.  For each of its places a
client draws a class from q_i.  If more places ask for a class than there are samples, chance decides, and the others
draw again among the classes that are left; Acar et al. (2021) do so one sample at a time.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Purpose, data_key
from fedcef.problems.data.partitions.deal import Deal, Draw, check_number, check_room, samples_by_class

LABELS = ("iid", "dirichlet")
"""How labels are dealt to clients of given sizes."""

_ALMOST_1 = 1 - 2.0**-24  # a client's number plus this is still below the next one's


def lognormal(
    targets: Tensor,
    num_clients: int,
    seed: int,
    sigma: float = 1.0,
    labels: str = "iid",
    alpha: float = 0.5,
    min_size: int = 10,
) -> Deal:
    """Sizes in proportion to exp(sigma·N(0, 1)) (Li et al. 2020, Acar et al. 2021); labels iid or dirichlet.

    Of two clients the larger one has exp(1.13·sigma) times as many samples, in the geometric mean.
    """
    check_number("sigma", sigma)
    check_room(num_clients, min_size, len(targets))
    normal = rng.normal(data_key(seed, Purpose.PARTITION, Draw.SIZES), num_clients)
    weights = torch.exp(sigma * (normal - normal.max()))  # the largest is 1: none overflows
    return _dealt(targets, proportional(weights, len(targets), min_size), seed, labels, alpha)


def zipf(
    targets: Tensor,
    num_clients: int,
    seed: int,
    exponent: float = 1.0,
    labels: str = "iid",
    alpha: float = 0.5,
    min_size: int = 10,
) -> Deal:
    """The r-th largest client's size in proportion to r^(-exponent), a power law (Zipf 1949); labels iid or dirichlet.

    Which client is the r-th largest is drawn from the seed.
    """
    check_number("exponent", exponent)
    check_room(num_clients, min_size, len(targets))
    ranks = 1 + rng.permutation(data_key(seed, Purpose.PARTITION, Draw.SIZES), num_clients)
    weights = ranks.double() ** -exponent
    return _dealt(targets, proportional(weights, len(targets), min_size), seed, labels, alpha)


def proportional(weights: Tensor, total: int, least: int) -> Tensor:
    """(N,) whole numbers that add up to `total`: max(least, c·w) for the right c, rounded by the largest remainders."""
    falling, count = weights.sort(descending=True).values, torch.arange(1, len(weights) + 1)
    factors = (total - (len(weights) - count) * least) / falling.cumsum(0)  # c, if only the `count` largest are above
    above = int((factors * falling >= least).sum())  # true for the largest ones, then false
    exact = (factors[max(above, 1) - 1] * weights).clamp(min=least)
    whole = exact.floor().long()
    remainders = (exact - whole).argsort(descending=True, stable=True)
    whole[remainders[: total - int(whole.sum())]] += 1
    return whole


def _dealt(targets: Tensor, sizes: Tensor, seed: int, labels: str, alpha: float) -> Deal:
    """Clients of these sizes, with labels in the way of that name."""
    if labels not in LABELS:
        raise ConfigError(f"labels must be {' or '.join(LABELS)}, not {labels!r}.")
    if labels == "iid":
        return Deal(rng.permutation(data_key(seed, Purpose.PARTITION, Draw.DEAL), len(targets)), sizes)
    check_number("alpha", alpha)
    samples, class_sizes = samples_by_class(targets, seed)
    generator = np.random.default_rng(int(data_key(seed, Purpose.PARTITION, Draw.SHARES)) % 2**64)
    drawn = torch.from_numpy(generator.dirichlet(np.full(len(class_sizes), alpha), size=len(sizes)))
    rows = torch.empty_like(samples)
    rows[_labels(drawn * class_sizes, class_sizes, sizes, seed).argsort(stable=True)] = samples
    return Deal(rows, sizes)


def _labels(preferences: Tensor, class_sizes: Tensor, sizes: Tensor, seed: int) -> Tensor:
    """(n,): a class for every place, client after client; each class as often as it has samples.

    In each pass all places without a class draw one.  Whatever class leaves some of them without is then used up, so
    that there are at most as many passes as classes.
    """
    owners = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    labels, left = torch.empty_like(owners), class_sizes.clone()
    places, number = torch.arange(len(owners)), 0
    while len(places):
        draw, lot = data_key(seed, Purpose.PARTITION, Draw.LABELS, torch.tensor([2 * number, 2 * number + 1]))
        wishes = _wishes(preferences, left, owners[places], rng.uniform(draw, len(places)))
        order = rng.permutation(lot, len(places))
        order = order[wishes[order].argsort(stable=True)]  # class by class, each in random order
        asked = wishes.bincount(minlength=len(left))
        rank = torch.arange(len(places)) - (asked.cumsum(0) - asked)[wishes[order]]
        served = rank < left[wishes[order]]
        labels[places[order[served]]] = wishes[order[served]]
        places, number = places[order[~served]], number + 1
        left -= torch.minimum(asked, left)
    return labels


def _wishes(preferences: Tensor, left: Tensor, owners: Tensor, uniform: Tensor) -> Tensor:
    """(n,): the class that each place draws, by its owner's preferences among the classes that are left."""
    open_ = preferences * (left > 0)
    open_ = torch.where(open_.sum(1, keepdim=True) > 0, open_, left.double())  # whoever liked only what is gone
    ends = open_.cumsum(1)
    ends = ends / ends[:, -1:]
    # One search for all: client i's classes lie between i and i + 1, each as wide as it is liked.
    steps = (ends + torch.arange(len(ends)).unsqueeze(1)).flatten()
    found = torch.searchsorted(steps, owners + uniform.clamp(max=_ALMOST_1), right=True)
    return found - owners * len(left)
