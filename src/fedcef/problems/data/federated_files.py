"""Data sets that are published client by client, in the files that their authors made: LEAF's JSON and TFF's HDF5.

LEAF (Caldas et al., 2018) writes a folder `train` and a folder `test` of .json files, each an object with

    users         the names of clients
    num_samples   how many samples each has
    user_data     name -> {"x": [...], "y": [...]}

In FEMNIST an x is 784 numbers and a y a class; in Shakespeare an x is a string of 80 characters and a y the next one.

TensorFlow Federated has a file *train*.h5 and a file *test*.h5, in which examples/NAME/ holds the client's arrays:
`pixels` and `label` (FEMNIST), `image` and `label` (CIFAR-100), `snippets` (Shakespeare) or `tokens` (StackOverflow:
words with spaces between them, a sentence in each entry).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import DataError
from fedcef.core.extras import install
from fedcef.problems.client_data import Samples

Examples = Samples | list[bytes]
"""What a client has: inputs with classes, or texts."""


@dataclass(frozen=True)
class FederatedFiles:
    """Clients by name, each read when it is asked for."""

    names: tuple[str, ...]
    read: Callable[[str], Examples]


def open_leaf(folder: Path, part: str) -> FederatedFiles:
    """LEAF's files in `folder`/`part`, where `part` is "train" or "test"; a text is a window and the next character."""
    clients: dict[str, Mapping[str, Any]] = {}
    for file in _files(folder / part, "*.json"):
        try:
            table = json.loads(file.read_bytes())
            users, counts, data = table["users"], table["num_samples"], table["user_data"]
            found = {user: len(data[user]["y"]) for user in users}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{file} is not in LEAF's format, an object with users, num_samples and user_data: {error}."
            ) from None
        for user, count in zip(users, counts, strict=True):
            if found[user] != count or len(data[user]["x"]) != count:
                raise DataError(f"{file} says that {user} has {count} samples, but holds {found[user]}.")
            if user in clients:
                raise DataError(f"{file} has {user} a second time; keep one of the files.")
            if count:
                clients[user] = data[user]
    return FederatedFiles(tuple(sorted(clients)), lambda name: _leaf_examples(name, clients[name]))


def open_tff(folder: Path, part: str) -> FederatedFiles:
    """TFF's file in `folder` with `part` in its name, "train" or "test"."""
    try:
        import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise DataError(f"reading TFF's .h5 files needs h5py; run: {install('h5py')}") from None
    files = _files(folder, f"*{part}*.h5")
    if len(files) > 1:
        raise DataError(f"{folder} has several files *{part}*.h5; leave one of them there.")
    try:
        with h5py.File(files[0], "r") as file:
            names = tuple(sorted(file["examples"]))
    except (OSError, KeyError) as error:
        raise DataError(f"{files[0]} is not in TFF's format, an HDF5 file with a group examples: {error}.") from None

    def read(name: str) -> Examples:
        with h5py.File(files[0], "r") as file:
            return _tff_examples(name, {key: values[()] for key, values in file["examples"][name].items()})

    return FederatedFiles(names, read)


FORMATS: dict[str, Callable[[Path, str], FederatedFiles]] = {"leaf": open_leaf, "tff": open_tff}


def _leaf_examples(name: str, data: Mapping[str, Any]) -> Examples:
    x, y = data["x"], data["y"]
    if all(isinstance(value, str) for value in (*x, *y)):
        return [(before + after).encode() for before, after in zip(x, y, strict=True)]
    try:
        return Samples(torch.tensor(x, dtype=torch.float32), _classes(np.asarray(y)))
    except (ValueError, TypeError) as error:
        raise DataError(f"The samples of {name} are neither numbers with classes nor text: {error}.") from None


def _tff_examples(name: str, arrays: Mapping[str, Any]) -> Examples:
    for key in ("snippets", "tokens"):
        if key in arrays:
            return [text if isinstance(text, bytes) else str(text).encode() for text in arrays[key].tolist()]
    if "label" in arrays and "pixels" in arrays:
        return Samples(torch.from_numpy(arrays["pixels"].astype(np.float32)).unsqueeze(1), _classes(arrays["label"]))
    if "label" in arrays and "image" in arrays:
        images = torch.from_numpy(arrays["image"].astype(np.float32)).div_(255).permute(0, 3, 1, 2)
        return Samples(images.contiguous(), _classes(arrays["label"]))
    raise DataError(
        f"The client {name} has {', '.join(arrays)}; it must have pixels and label, image and label, snippets, or "
        "tokens."
    )


def _classes(labels: Any) -> Tensor:
    if labels.dtype.kind not in "iu":
        raise ValueError(f"labels are {labels.dtype}, not whole numbers")
    return torch.from_numpy(labels.astype(np.int64)).reshape(-1)


def _files(folder: Path, pattern: str) -> Sequence[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise DataError(f"{folder} has no files {pattern}; data.path must be the folder that holds the data set.")
    return files
