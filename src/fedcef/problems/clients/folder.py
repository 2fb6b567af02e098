"""Clients as files of a folder, one each: npz, safetensors or parquet."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedcef.core.errors import ConfigError, DataError
from fedcef.core.extras import install
from fedcef.problems.client_data import ClientData
from fedcef.problems.clients.columns import Names, Transform, listed, read_columns
from fedcef.problems.clients.loaded import CACHE, LoadedData


def from_folder(
    folder: str | os.PathLike[str],
    pattern: str = "*",
    num_clients: int | None = None,
    *,
    inputs: Names = "inputs",
    targets: Names = "targets",
    transform: Transform | None = None,
    cache: int | str = CACHE,
) -> ClientData:
    """Clients as files of a folder, each of which is read when a round needs it.

    A file is .npz, .safetensors or .parquet (which needs pyarrow), and has the client's inputs and targets under the
    names given.

    Args:
        folder: Where the files are.
        pattern: Which files; clients are numbered in the order of their names, "client-2.npz" before "client-10.npz".
            Or a name with the client's number in it, such as "client-{}.npz": then the folder is not listed, and need
            not hold the others' files.
        num_clients: N; only for a pattern with a number.
        inputs: The array or column of the inputs.  Several columns of numbers make one vector for each sample.
        targets: Likewise.
        transform: transform(inputs, targets) returns what is used in place of these tensors of a client's samples.
        cache: How many bytes are kept of what was read; a cohort should fit into half of it.

    >>> for client in range(3):
    ...     np.savez(folder / f"{client}.npz", inputs=np.full((4, 2), client, "float32"), targets=np.arange(4))
    >>> data = from_folder(folder)
    >>> data.num_clients, data.samples(2).inputs[0].tolist()
    (3, [2.0, 2.0])
    """
    files = (
        _Numbered(Path(folder), pattern, num_clients) if "{" in pattern else _Listed(Path(folder), pattern, num_clients)
    )
    names = [*listed(inputs), *listed(targets)]

    def read(client: int) -> tuple[Tensor, Tensor]:
        path = files.path(client)
        if path.suffix not in _READERS:
            raise DataError(f"{path.name} is of no known kind; there are {', '.join(_READERS)}.")
        try:
            return read_columns(_READERS[path.suffix](path, names), client, inputs, targets, transform)
        except FileNotFoundError:
            raise DataError(f"there is no file {path}.") from None
        except Exception as error:
            raise DataError(f"in {path}, {str(error) or type(error).__name__}") from error

    return LoadedData(read, files.count, cache=cache, place=files.path)


class _Numbered:
    """Files whose names have the clients' numbers in them."""

    def __init__(self, folder: Path, pattern: str, num_clients: int | None) -> None:
        if num_clients is None:
            raise ConfigError(f"The files {pattern} are not counted; give num_clients, too.")
        self._folder, self._pattern, self.count = folder, pattern, num_clients

    def path(self, client: int) -> Path:
        return self._folder / self._pattern.format(client)


class _Listed:
    """The files that a folder has; their names are bytes of one array, since there may be a million."""

    def __init__(self, folder: Path, pattern: str, num_clients: int | None) -> None:
        if num_clients is not None:
            raise ConfigError(
                "num_clients is for a pattern with a number in it, such as 'client-{}.npz'; leave it out."
            )
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if fnmatch(entry.name, pattern)]
        except OSError as error:
            raise DataError(f"The folder {folder} cannot be read: {error.strerror}.") from error
        known = [os.fsencode(name) for name in names if Path(name).suffix in _READERS]
        if not known:
            raise DataError(
                f"The folder {folder} has no files {pattern} of the kinds {', '.join(_READERS)}; there must be one for "
                "each client."
            )
        self._folder, self._names, self.count = folder, np.array(sorted(known, key=_in_words_and_numbers)), len(known)

    def path(self, client: int) -> Path:
        return self._folder / os.fsdecode(self._names[client].item())


def _in_words_and_numbers(name: bytes) -> tuple[list[bytes | int], bytes]:
    """What names are sorted by: client-2 comes before client-10."""
    parts = re.split(rb"(\d+)", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], name


def _read_npz(path: Path, names: list[str]) -> Mapping[str, Any]:
    if not zipfile.is_zipfile(path) and path.is_file():
        raise DataError("there is no .npz archive; the file is damaged or of another kind.")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: _array_of(arrays, name) if name in names else None for name in arrays.files}


def _array_of(arrays: Any, name: str) -> Any:
    try:
        return arrays[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{name} is an array of Python objects, which is not read, since that could run code; save it as numbers, "
            f"or words as text: np.asarray({name}, dtype=str)."
        ) from None


def _read_safetensors(path: Path, names: list[str]) -> Mapping[str, Any]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as tensors:
        return {name: tensors.get_tensor(name) if name in names else None for name in tensors.keys()}  # noqa: SIM118 - not a dict


def _read_parquet(path: Path, names: list[str]) -> Mapping[str, Any]:
    try:
        from pyarrow import parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise DataError(f"reading .parquet needs pyarrow; run: {install('pyarrow')}") from None
    with parquet.ParquetFile(path) as file:
        there = file.schema_arrow.names
        table = file.read(columns=[name for name in names if name in there])
    return {name: table[name].to_numpy() if name in names else None for name in there}


_READERS: dict[str, Callable[[Path, list[str]], Mapping[str, Any]]] = {
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}
