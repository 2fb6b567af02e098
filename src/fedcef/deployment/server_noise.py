"""The server's own noise on the sum of its clients' messages: nobody else can compute it.

The noise of the simulator is a function of the seed, which every client knows: it could subtract it.  A deployed server
has a key of its own, drawn once for each run, through a hash that cannot be reversed (private_noise.py).  Into the hash
go the round's key and the sum.  So a round that is ended again after a kill gets the same noise, and another sum gets
other noise.

    noise.secret    the key, in the run folder; keep it from clients
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm
from fedcef.algorithms.noisy_sums import Noisy
from fedcef.compressors.on_grid import OnGrid
from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.deployment.private_noise import normals

_BYTES = 32


def with_own_noise(algorithm: Algorithm, path: Path, disk: Disk) -> Algorithm:
    """The method with the noise of the server whose key is in this file; methods without noise as they are."""
    if not isinstance(algorithm, Noisy):
        return algorithm
    if not path.exists():
        disk.replace(path, secrets.token_hex(_BYTES).encode())
    try:
        key = bytes.fromhex(path.read_text("ascii"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; put it back from a copy, or begin a new run.") from None

    def draw(total: OnGrid, round_: Tensor) -> Tensor:
        numbers = total.steps.cpu().numpy().tobytes()
        seed = hashlib.blake2b(repr((int(round_), total.grid)).encode() + numbers, key=key, digest_size=_BYTES)
        return normals(seed.digest(), total.steps.shape[-1])

    return replace(algorithm, draw=draw)
