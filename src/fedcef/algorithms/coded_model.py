"""A model in a few bits an entry, for those who know where the run began.

    sent      a = <z, z0>/|z0|²  and  Q(z - a·z0)
    decoded   a·z0 + Q(z - a·z0)

Q is EDEN with b bits: a random rotation, then the levels that are best for normal numbers, scaled so that for vectors
without dominant entries E Q(x) = x.  Each message has a rotation of its own, so that errors of one round are not those
of the next.  Everyone knows z0, and what is left of it in z need not be sent: early in a run, when adapters or a
trained model are fine-tuned, that is nearly all.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedcef.algorithms.algorithm import Message, Vector
from fedcef.compressors import Eden
from fedcef.compressors.blocks import divided, total
from fedcef.core.rng import Key
from fedcef.wire import Dense

ModelBits = Annotated[int, Field(ge=0, le=4)]
"""Bits for an entry of a model; 0 = all that it has."""


def coded(z: Vector, start: Vector, bits: int, key: Key) -> Message:
    """What is sent for z, (p,), to those who know the start."""
    if not bits:
        return {"z": Dense(z)}
    left = divided(total(z * start), total(start.square())).to(z.dtype)
    return {"left": Dense(left), "z": Eden(bits=bits, unbiased=True).compress(z - left * start, key)}


def decoded(message: Message, start: Vector) -> Vector:
    """The z that everyone has after that message."""
    z = message["z"].dense()
    return z + message["left"].dense() * start if "left" in message else z
