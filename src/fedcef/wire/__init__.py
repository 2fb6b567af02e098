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
from fedcef.wire.levels import Levels, LevelTables
from fedcef.wire.low_rank import LowRank
from fedcef.wire.nonzeros import Nonzeros
from fedcef.wire.payload import Payload
from fedcef.wire.powers import Powers
from fedcef.wire.relay import Relay, mean
from fedcef.wire.rotated import Rotated
from fedcef.wire.rotation import rotate, unrotate
from fedcef.wire.seeded import Seeded
from fedcef.wire.smallest import Smallest, smallest
from fedcef.wire.sparse import Sparse
from fedcef.wire.tables import TABLES
from fedcef.wire.value_types import VALUE_TYPES, ValueType, cast
from fedcef.wire.values import Values

__all__ = [
    "TABLES",
    "VALUE_TYPES",
    "Dense",
    "Frame",
    "FrameKind",
    "LevelTables",
    "Levels",
    "LowRank",
    "Nonzeros",
    "Payload",
    "Powers",
    "Relay",
    "Rotated",
    "Seeded",
    "Smallest",
    "Sparse",
    "ValueType",
    "Values",
    "WireError",
    "cast",
    "decode",
    "encode",
    "frame_nbytes",
    "frame_paper_nbytes",
    "mean",
    "read_frames",
    "rotate",
    "smallest",
    "split",
    "unrotate",
]
