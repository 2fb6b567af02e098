"""The number formats that may be sent, and their bytes: IEEE 754 (or bfloat16), little endian, finite."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.wire.reader import WireError


class ValueType(NamedTuple):
    """A float format: its name, its number on the wire and how its bits look."""

    name: str
    code: int
    dtype: torch.dtype
    bits: torch.dtype  # integers of the same width: NumPy has no bfloat16, so bits are what is moved
    exponent: int  # mask of the exponent field; it is all ones in an infinity or a NaN and nowhere else


VALUE_TYPES: dict[str, ValueType] = {
    kind.name: kind
    for kind in (
        ValueType("float32", 1, torch.float32, torch.int32, 0x7F80_0000),
        ValueType("float16", 2, torch.float16, torch.int16, 0x7C00),
        ValueType("bfloat16", 3, torch.bfloat16, torch.int16, 0x7F80),
        ValueType("float64", 4, torch.float64, torch.int64, 0x7FF0_0000_0000_0000),
    )
}
_BY_CODE = {kind.code: kind for kind in VALUE_TYPES.values()}
_BY_DTYPE = {kind.dtype: kind for kind in VALUE_TYPES.values()}


def cast(values: Tensor, name: str) -> Tensor:
    """`values` rounded to the named value type.

    What is too large for float16 becomes infinite, and is then refused by the encoder.
    """
    if name not in VALUE_TYPES:
        raise WireError(f"Unknown value type {name!r}; allowed are {', '.join(VALUE_TYPES)}.")
    return values.to(VALUE_TYPES[name].dtype)


def of_tensor(values: Tensor) -> ValueType:
    """The value type that a tensor is sent in."""
    if values.dtype not in _BY_DTYPE:
        raise WireError(f"Values of type {values.dtype} cannot be sent; allowed are {', '.join(VALUE_TYPES)}.")
    return _BY_DTYPE[values.dtype]


def of_code(code: int) -> ValueType | None:
    """The value type with this number on the wire, if there is one."""
    return _BY_CODE.get(code)


def to_bytes(values: Tensor) -> bytes:
    """(k,) -> k × itemsize bytes."""
    kind = of_tensor(values)
    bits = values.detach().cpu().contiguous().view(kind.bits).numpy()
    _require_finite(bits, kind)
    return bits.astype(bits.dtype.newbyteorder("<"), copy=False).tobytes()


def from_bytes(data: memoryview, kind: ValueType) -> Tensor:
    """k × itemsize bytes -> (k,), in memory of its own."""
    wire = np.frombuffer(data, dtype=f"<i{kind.dtype.itemsize}")
    bits = wire.astype(wire.dtype.newbyteorder("="))
    _require_finite(bits, kind)
    return torch.from_numpy(bits).view(kind.dtype)


def _require_finite(bits: NDArray[np.signedinteger], kind: ValueType) -> None:
    bad = (bits & kind.exponent) == kind.exponent
    if bad.any():
        raise WireError(f"Value number {int(bad.argmax())} of {bits.size} is not finite; only finite numbers are sent.")
