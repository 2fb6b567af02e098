"""Vectors and messages as bytes, counted exactly; the only code that knows bytes (docs/wire.md).

A message is a mapping from names to payloads.  `encode` makes a frame of it and `decode` a message of a frame:

    frame.py       a message in bytes          envelope.py    magic, version, lengths and checksum, for all formats
    log.py         frames one after another    checksums.py   of many stretches of the same bytes
    payload.py     one vector of a message     checkpoint.py  tensors in a file that tells whether it is whole
    forms/         the forms of a vector       reader.py      a cursor over bytes that cannot be trusted
    values/        what stands at its entries  names.py       names in bytes
    codes/         indices and small symbols   stacks.py      what is held for one vector or for many
    context.py     what both sides know        extensions.py  forms and value types of other packages
"""

from fedcef.wire.context import Context, faded
from fedcef.wire.forms.dense import Dense
from fedcef.wire.forms.low_rank import LowRank
from fedcef.wire.forms.nonzeros import Nonzeros
from fedcef.wire.forms.registry import register_form
from fedcef.wire.forms.relay import Relay, as_stack, mean
from fedcef.wire.forms.rotated import Rotated, rotate, unrotate
from fedcef.wire.forms.seeded import Seeded
from fedcef.wire.forms.smallest import Smallest, smallest
from fedcef.wire.forms.sparse import Sparse
from fedcef.wire.frame import (
    Contexts,
    Frame,
    FrameKind,
    OtherPartsError,
    decode,
    encode,
    frame_nbytes,
    frame_paper_nbytes,
    head_of,
)
from fedcef.wire.log import read_frames, split
from fedcef.wire.payload import HEAD, Head, Payload, encode_head
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.values.levels import Levels, LevelTables
from fedcef.wire.values.number_formats import VALUE_TYPES, ValueType, cast
from fedcef.wire.values.powers import Powers
from fedcef.wire.values.registry import read_values, register_value_type
from fedcef.wire.values.tables import TABLES
from fedcef.wire.values.values import Values, as_values

__all__ = [
    "HEAD",
    "TABLES",
    "VALUE_TYPES",
    "Context",
    "Contexts",
    "Dense",
    "Frame",
    "FrameKind",
    "Head",
    "LevelTables",
    "Levels",
    "LowRank",
    "Nonzeros",
    "OtherPartsError",
    "Payload",
    "Powers",
    "Reader",
    "Relay",
    "Rotated",
    "Seeded",
    "Smallest",
    "Sparse",
    "ValueType",
    "Values",
    "WireError",
    "as_stack",
    "as_values",
    "cast",
    "decode",
    "encode",
    "encode_head",
    "faded",
    "frame_nbytes",
    "frame_paper_nbytes",
    "head_of",
    "mean",
    "read_frames",
    "read_values",
    "register_form",
    "register_value_type",
    "rotate",
    "smallest",
    "split",
    "unrotate",
]
