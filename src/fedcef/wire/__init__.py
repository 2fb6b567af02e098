"""Vectors and messages as bytes, counted exactly; the only code that knows bytes (docs/wire.md)."""

from fedcef.wire.errors import WireError
from fedcef.wire.forms.dense import Dense
from fedcef.wire.forms.low_rank import LowRank
from fedcef.wire.forms.nonzeros import Nonzeros
from fedcef.wire.forms.relay import Relay, mean
from fedcef.wire.forms.rotated import Rotated
from fedcef.wire.forms.seeded import Seeded
from fedcef.wire.forms.smallest import Smallest, smallest
from fedcef.wire.forms.sparse import Sparse
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
from fedcef.wire.payload import Payload
from fedcef.wire.values.levels import Levels, LevelTables
from fedcef.wire.values.powers import Powers
from fedcef.wire.values.rotation import rotate, unrotate
from fedcef.wire.values.tables import TABLES
from fedcef.wire.values.value_types import VALUE_TYPES, ValueType, cast
from fedcef.wire.values.values import Values

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
