"""From what users have, arrays or data sets, to a table of samples that has been looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import ProblemError
from fedcef.problems.client_data import PooledData, Samples


def read_samples(data: Any, whose: str, finite: bool = True) -> Samples:
    """A pair of arrays, or a map-style data set of (input, target) pairs, as one table; `whose` is for messages.

    `finite` = False leaves the values to whoever looks at many tables at once.
    """
    if isinstance(data, Samples):
        samples = data
    elif _is_pair(data):
        samples = Samples(to_tensor(data[0], f"The inputs of {whose}"), to_tensor(data[1], f"The targets of {whose}"))
    elif isinstance(data, Sized) and hasattr(data, "__getitem__"):
        try:
            rows = [data[i] for i in range(len(data))]
            parts = [torch.stack([torch.as_tensor(row[j]) for row in rows]) if rows else torch.empty(0) for j in (0, 1)]
        except Exception as error:
            raise ProblemError(f"The samples of {whose} do not make a table of inputs and targets: {error}") from error
        samples = Samples(*parts)
    else:
        raise ProblemError(
            f"The data of {whose} must be an (inputs, targets) pair of tensors or a map-style data set, "
            f"not {type(data).__name__}."
        )
    if len(samples.inputs) != len(samples.targets):
        raise ProblemError(f"The data of {whose} has {len(samples.inputs)} inputs but {len(samples.targets)} targets.")
    if len(samples) == 0:
        raise ProblemError(f"The data of {whose} is empty; leave the client out or give it samples.")
    if finite:
        check_finite(samples, whose)
    return samples


def check_finite(samples: Samples, whose: str) -> None:
    """Refuse NaN and infinite values."""
    for what, values in (("inputs", samples.inputs), ("targets", samples.targets)):
        if not _is_finite(values):
            bad = (~values.reshape(len(values), -1).isfinite()).any(-1).sum()
            raise ProblemError(
                f"The {what} of {whose} have NaN or infinite values in {int(bad)} of {len(samples)} samples; "
                "leave these samples out or fill them in."
            )


def _is_finite(values: Tensor) -> bool:
    return not values.is_floating_point() or bool(values.sum(dtype=torch.float64).isfinite())


def read_clients(clients: Iterable[Any]) -> PooledData:
    """Each client's data, an (inputs, targets) pair or a map-style data set, in one table; at least one client."""
    shards = [read_samples(data, f"client {i}", finite=False) for i, data in enumerate(clients)]
    form = Form.of(0, shards[0])
    for i, shard in enumerate(shards):
        form.check_shapes(i, shard)
    pooled = PooledData.of(shards)
    if not (_is_finite(pooled.table.inputs) and _is_finite(pooled.table.targets)):
        for i, shard in enumerate(shards):
            check_finite(shard, f"client {i}")
    return pooled


@dataclass(frozen=True)
class Form:
    """What all clients' samples look like, by the first one that was read."""

    client: int
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[torch.dtype, torch.dtype]

    @classmethod
    def of(cls, client: int, samples: Samples) -> Form:
        """As this client's are."""
        return cls(client, samples.shapes, samples.dtypes)

    def check_shapes(self, client: int, samples: Samples) -> None:
        """Refuse samples of other shapes."""
        if samples.shapes != self.shapes:
            raise ProblemError(
                f"The data of client {client} does not fit client {self.client}'s: a sample's input and target have "
                f"the shapes {samples.shapes}, not {self.shapes}."
            )

    def check(self, client: int, samples: Samples) -> None:
        """Refuse samples of other shapes or types."""
        self.check_shapes(client, samples)
        if samples.dtypes != self.dtypes:
            mine, others = (
                " and ".join(str(d).removeprefix("torch.") for d in x) for x in (samples.dtypes, self.dtypes)
            )
            raise ProblemError(
                f"The data of client {client} does not fit client {self.client}'s: inputs and targets are {mine}, not "
                f"{others}."
            )


def _is_pair(data: Any) -> bool:
    """Two arrays; the targets may be a list of labels, as long as the inputs."""
    if not (isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], Tensor | np.ndarray)):
        return False
    inputs, targets = data
    labels = isinstance(targets, list) and len(targets) == len(inputs) and all(np.isscalar(t) for t in targets)
    return isinstance(targets, Tensor | np.ndarray) or labels


def to_tensor(values: Any, what: str) -> Tensor:
    """An array as a tensor; `what` is for messages."""
    kind = np.asarray(values).dtype.kind if not isinstance(values, Tensor) else ""
    if kind in ("U", "S", "O"):
        raise ProblemError(
            f"{what} are words or other objects, such as {np.asarray(values).flat[:1].tolist()[0]!r}; give numbers, "
            "for class labels 0, 1, 2, …."
        )
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"{what} cannot be made a tensor: {error}") from error
