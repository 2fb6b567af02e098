"""Natural clients: a column of the data says whose each sample is."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.parts import is_path
from fedcef.core.rng import Purpose, data_key
from fedcef.problems.data.partitions.deal import Deal, Draw, check_whole
from fedcef.problems.own import call


def by_column(targets: Tensor, num_clients: int, seed: int, column: Any = "", min_size: int = 10) -> Deal:
    """One client for each different value of a column, such as the writer of an image (Caldas et al. 2018, LEAF).

    Clients with fewer than `min_size` samples are left out, as in LEAF, and if there are more than `num_clients` then,
    the seed chooses among them.  They are numbered by their values, in ascending order.

    Args:
        targets: the classes of the samples, of which only the number counts here.
        num_clients: how many clients are wanted.
        seed: chooses among the clients, if there are more.
        column: a value for each training sample: an array or tensor, a file "ids.npz:key" or "ids.npy", or the import
            path "module:function" of a function without arguments that returns it.
        min_size: how many samples a client has at least.
    """
    check_whole("min_size", min_size)
    values = read_column(column)
    if values.shape != (len(targets),):
        raise ConfigError(
            f"data.column must have one value for each of the {len(targets)} training samples; its shape is "
            f"{values.shape}."
        )
    names, owners, sizes = np.unique(values, return_inverse=True, return_counts=True)
    large = torch.from_numpy(np.flatnonzero(sizes >= min_size))
    if num_clients > len(large):
        raise ConfigError(
            f"of the {len(names)} clients in data.column {len(large)} have at least {min_size} samples, fewer than "
            f"num_clients = {num_clients}; take fewer clients or a smaller min_size."
        )
    chosen = large[rng.subset(data_key(seed, Purpose.PARTITION, Draw.DEAL), len(large), num_clients)]
    numbers = torch.full((len(names),), -1)
    numbers[chosen] = torch.arange(num_clients)
    numbers = numbers[torch.from_numpy(owners)]
    rows = (numbers >= 0).nonzero().squeeze(1)
    return Deal.to_owners(rows, numbers[rows], num_clients)


def read_column(source: Any) -> NDArray[Any]:
    """A column of whole numbers or words, from wherever `by_column` may take it."""
    if isinstance(source, str):
        file, _, key = source.rpartition(":") if ".npz:" in source else (source, "", "")
        if Path(file).suffix in (".npz", ".npy"):
            source = _read_file(source, Path(file), key)
        elif is_path(source):
            source = call("data.column", source)
        else:
            raise ConfigError(
                f"data.column is {source!r}; it must be a file such as ids.npz:key or ids.npy, or the import path of a "
                "function, module:function."
            )
    values: NDArray[Any] = np.asarray(source)
    if values.dtype.kind not in "biuUS":
        raise ConfigError(f"data.column must hold whole numbers or words, one for each sample, not {values.dtype}.")
    return values


def _read_file(source: str, path: Path, key: str) -> NDArray[Any]:
    try:
        content = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ConfigError(f"data.column is {source!r}, but there is no file {path}.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"data.column is {source!r}, but {path} cannot be read: {error}.") from None
    if isinstance(content, np.ndarray):
        return content
    with content:
        if key not in content.files:
            raise ConfigError(
                f"data.column is {source!r}, but {path} holds {', '.join(content.files) or 'nothing'}; name one of "
                f"them, as in {path.name}:{next(iter(content.files), 'key')}."
            )
        try:
            found: NDArray[Any] = content[key]
        except (ValueError, zipfile.BadZipFile) as error:
            raise ConfigError(f"data.column is {source!r}, but {key} cannot be read: {error}.") from None
    return found
