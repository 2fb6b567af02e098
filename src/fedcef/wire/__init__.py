"""Vectors and messages as bytes, counted exactly; the only code that knows bytes (docs/wire.md)."""

from fedcef.wire.dense import Dense
from fedcef.wire.errors import WireError
from fedcef.wire.frame import (
    Frame,
    FrameKind,
    decode,
    encode,
    frame_nbytes,
    frame_paper_nbytes,
    read_frames,
    split,
)
from fedcef.wire.nonzeros import Nonzeros
from fedcef.wire.payload import Payload
from fedcef.wire.seeded import Seeded
from fedcef.wire.sparse import Sparse
from fedcef.wire.value_types import VALUE_TYPES, ValueType, cast

__all__ = [
    "VALUE_TYPES",
    "Dense",
    "Frame",
    "FrameKind",
    "Nonzeros",
    "Payload",
    "Seeded",
    "Sparse",
    "ValueType",
    "WireError",
    "cast",
    "decode",
    "encode",
    "frame_nbytes",
    "frame_paper_nbytes",
    "read_frames",
    "split",
]
