"""From what users have, arrays or data sets, to a table of samples that has been looked at."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import ProblemError
from fedcef.problems.client_data import Samples


def read_samples(data: Any, whose: str) -> Samples:
    """A pair of arrays, or a map-style data set of (input, target) pairs, as one table; `whose` is for messages."""
    if isinstance(data, Samples):
        samples = data
    elif _is_pair(data):
        samples = Samples(_tensor(data[0], f"The inputs of {whose}"), _tensor(data[1], f"The targets of {whose}"))
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
    for what, values in (("inputs", samples.inputs), ("targets", samples.targets)):
        if values.is_floating_point() and not values.sum(dtype=torch.float64).isfinite():
            bad = (~values.reshape(len(values), -1).isfinite()).any(-1).sum()
            raise ProblemError(
                f"The {what} of {whose} have NaN or infinite values in {int(bad)} of {len(samples)} samples; "
                "leave these samples out or fill them in."
            )
    return samples


def _is_pair(data: Any) -> bool:
    """Two arrays; the targets may be a list of labels, as long as the inputs."""
    if not (isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], Tensor | np.ndarray)):
        return False
    inputs, targets = data
    labels = isinstance(targets, list) and len(targets) == len(inputs) and all(np.isscalar(t) for t in targets)
    return isinstance(targets, Tensor | np.ndarray) or labels


def _tensor(values: Any, what: str) -> Tensor:
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
