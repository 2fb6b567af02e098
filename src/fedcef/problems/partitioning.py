"""The samples of a data set dealt out to clients, as a column that says whose each of them is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.parts import check
from fedcef.core.ranges import NotNegative
from fedcef.problems.arrays import to_column
from fedcef.problems.data.partitions import deal
from fedcef.problems.labels import Labels


def partition(labels: Any, num_clients: int, /, by: str = "dirichlet", *, seed: int = 0, **options: Any) -> Tensor:
    """Whose each sample is, (n,) int64, for `Problem.build(…, client_ids=…)`: a data set dealt out to clients.

    Args:
        labels: The samples' classes, as numbers or words.
        num_clients: N.
        by: "dirichlet", "iid", "shards", "lognormal" or "zipf" (docs/data.md), or the import path of another way.
        seed: What the deal is drawn from.
        **options: Of that way: alpha and min_size, say.

    >>> partition(["a", "b"] * 50, 4, by="shards", classes_per_client=1).bincount().tolist()
    [25, 25, 25, 25]
    """
    if by == "by_column":
        raise ConfigError("A column that says whose each sample is needs no partition; give it as client_ids.")
    seed = check("seed", NotNegative, seed)
    column = to_column(labels, "The labels")
    if column.ndim != 1:
        raise ConfigError(f"The labels have the shape {tuple(column.shape)}; there must be one for each sample.")
    if isinstance(column, Tensor) and column.is_floating_point():
        if by in ("dirichlet", "shards") or options.get("labels") == "dirichlet":
            raise ConfigError(f"The partition {by} goes by classes, and the labels are {column.dtype}; take by='iid'.")
        column = torch.zeros(len(column), dtype=torch.int64)
    numbers = Labels.found([column]).encode(column, "The labels")
    dealt = deal(by, numbers, num_clients, seed, **options)
    if len(dealt.rows) != len(column):
        raise ConfigError(f"The partition {by} deals {len(dealt.rows)} of the {len(column)} samples; it must deal all.")
    owners = torch.empty(len(column), dtype=torch.int64)
    owners[dealt.rows] = dealt.owners
    return owners
