"""Counting what the clients of a problem hold."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.problems.client_data import PooledData
from fedcef.problems.clients.pool import IndexedData, PoolData
from fedcef.problems.holdings import Counts, Holdings, Reals
from fedcef.problems.problem import Problem
from fedcef.problems.text.windows import TextData

MOST_CLASSES = 100  # beyond this a histogram of classes says little
MOST_READ = 2000  # clients, of a source that must read each of them


def count_holdings(problem: Problem, most_classes: int = MOST_CLASSES) -> Holdings:
    """How many samples every client has, in all and of each class.

    Of a source that is not in memory at most 2,000 clients are read, drawn at random.
    """
    if isinstance(problem.data, TextData):  # a sample has a target for each token, and there is nothing to compare
        return Holdings(problem.data.sizes.cpu().numpy())
    sizes, targets, population = _targets(problem)
    held = sizes.numpy()
    if targets.ndim != 1:
        return Holdings(held, population=population)
    owners = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    if not problem.classifies:
        return Holdings(held, mean_targets=_means(owners, targets, held), population=population)
    classes, numbers = torch.unique(targets, return_inverse=True)
    if len(classes) > most_classes:
        return Holdings(held, population=population)
    counts: Counts = (owners * len(classes) + numbers).bincount(minlength=len(sizes) * len(classes)).numpy()
    return Holdings(
        held, _names(problem, classes.tolist()), counts.reshape(len(sizes), len(classes)), population=population
    )


def _targets(problem: Problem) -> tuple[Tensor, Tensor, int]:
    """Sizes (S,) and targets (n, …), client after client; and N, if these are only some of the clients."""
    data = problem.data
    if isinstance(data, PooledData):
        return data.sizes.cpu(), _flat(data.table.targets), 0
    if isinstance(data, IndexedData) and data.captures:  # a data set has no pool
        return data.sizes.cpu(), _flat(data.pool.targets[data.order]), 0
    everyone = data.num_clients <= MOST_READ
    some = torch.arange(data.num_clients)
    if not everyone:
        some = rng.subset(rng.fixed_key(), data.num_clients, MOST_READ)
    if isinstance(data, PoolData) and data.captures and data.equal_sizes:  # no sample is touched
        some = some.to(data.device)
        numbers = data.numbers(some, torch.arange(data.largest, device=data.device).expand(len(some), -1))
        tables = list(data.pool.targets[numbers])
    else:
        tables = [data.samples(client).targets for client in some.tolist()]
    sizes = torch.tensor([len(table) for table in tables])
    return sizes, _flat(torch.cat(tables)), 0 if everyone else data.num_clients


def _names(problem: Problem, numbers: list[int]) -> tuple[int | str, ...]:
    """The classes as they were handed in, where they were no numbers."""
    known = len(problem.classes)
    return tuple(str(problem.classes[number]) if 0 <= number < known else number for number in numbers)


def _flat(targets: Tensor) -> Tensor:
    """(n, 1) as (n,): one target for each sample is one, whatever its shape."""
    return (targets.flatten() if targets.numel() == len(targets) else targets).cpu()


def _means(owners: Tensor, targets: Tensor, sizes: Counts) -> Reals:
    sums = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, owners, targets.double())
    means: Reals = sums.numpy() / np.maximum(1, sizes)
    return means
