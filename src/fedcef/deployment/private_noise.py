"""A client's own noise for private messages: nobody else can compute it, and none of it is had without being counted.

The noise of the simulator is a function of the seed, which the server knows: it could subtract it.  A client takes its
noise from a key of its own, drawn once for each run and kept on its disk beside its state, through a hash that cannot
be reversed.  (The hash in rng.py can: a few entries of known noise would give away the rest.)

Into the hash goes all that the message depends on: the order, the state that the work began with, and the vector
itself.  So the same work, done again after a kill, gives the same message and tells nothing new.  Any other work gets
other noise, also in the same round: the same noise on two vectors would give away their difference.

    RUN.secret      the key, how many messages it made noise for, and the seed of the last
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors.private import Private
from fedcef.core.disk import Disk, PrivateDisk
from fedcef.core.errors import RunError
from fedcef.core.rng import Key
from fedcef.deployment.identity import RunId
from fedcef.deployment.messages import Order, Stamp
from fedcef.wire.checkpoint import read_checkpoint, write_checkpoint

_BYTES = 32
_BITS = 52  # (k + 1/2)/2^52 is exact in float64, and neither 0 nor 1


@dataclass(frozen=True)
class Secret:
    """What the file of a run holds."""

    key: str  # in hexadecimal digits, as is the seed
    messages: int = 0
    last: str = ""


class PrivateNoise:
    """The noise of the client whose states are in this folder, for at most so many messages in a run."""

    def __init__(self, folder: Path, most: int, disk: Disk | None = None) -> None:
        self.folder, self.most, self.disk = folder, most, disk or PrivateDisk()

    def protect(self, algorithm: Algorithm, order: Order, base: Stamp | None) -> Algorithm:
        """The method with this client's noise for one order; a method without [privacy] as it is."""
        private = algorithm.compressor
        if not isinstance(private, Private):
            return algorithm

        def draw(x: Tensor, key: Key) -> Tensor:
            return normals(self._seed(order, base, x), x.shape[-1])

        return replace(algorithm, compressor=replace(private, draw=draw))

    def _seed(self, order: Order, base: Stamp | None, x: Tensor) -> bytes:
        """The seed of the noise for x, counted before anyone can use it."""
        secret = self._read(order.run)
        work = repr((str(order.run), order.round, order.client, base, order.replica)).encode()
        vector = x.detach().cpu().contiguous().numpy().tobytes()
        seed = hashlib.blake2b(work + vector, key=bytes.fromhex(secret.key), digest_size=_BYTES).digest()
        if seed.hex() != secret.last:
            if secret.messages >= self.most:
                raise RunError(f"This client has sent {self.most} private messages in this run and sends no more.")
            counted = Secret(secret.key, secret.messages + 1, seed.hex())
            write_checkpoint(self._file(order.run), asdict(counted), {}, self.disk)
        return seed

    def messages(self, run: RunId) -> int:
        """How many different messages were made in a run."""
        return self._read(run).messages

    def _read(self, run: RunId) -> Secret:
        path = self._file(run)
        if not path.exists():
            return Secret(secrets.token_hex(_BYTES))  # kept with the first message
        try:
            header, _ = read_checkpoint(path)
            return Secret(**header)
        except (RunError, TypeError) as error:
            raise RunError(
                f"This client does not know what it has sent, so it sends no more in this run: {error}"
            ) from None

    def _file(self, run: RunId) -> Path:
        return self.folder / f"{run}.secret"


def normals(seed: bytes, count: int) -> Tensor:
    """So many standard normal float64 numbers, that nobody can tell from others without the seed."""
    stream = bytearray(hashlib.shake_256(seed).digest(8 * count))
    whole = torch.frombuffer(stream, dtype=torch.int64) & (2**_BITS - 1)
    numbers: Tensor = torch.special.ndtri((whole.double() + 0.5) * 2.0**-_BITS)
    return numbers
