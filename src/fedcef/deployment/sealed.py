"""Named tensors and a few numbers as one block of bytes that tells whether it is whole.

    4   magic "FCSL"
    u8  version 1
    u32 length of the header;  u64 length of the tensors
    …   header, JSON
    …   tensors, safetensors
    16  BLAKE2b of everything before

Client states, snapshots and sums are kept in it.  Neither JSON nor safetensors can carry code.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedcef.errors import RunError

MAGIC, VERSION = b"FCSL", 1
_FIELDS = struct.Struct("<4sBIQ")
_DIGEST = 16


class DamagedError(RunError):
    """Bytes on a disk that are not what was once written there."""


def seal(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    text = json.dumps(header, sort_keys=True).encode()
    payload = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    content = _FIELDS.pack(MAGIC, VERSION, len(text), len(payload)) + text + payload
    return content + digest(content)


def unseal(data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors, or an error for anything that `seal` did not write."""
    if len(data) < _FIELDS.size + _DIGEST:
        raise DamagedError(f"It has {len(data)} bytes, which is too short.")
    magic, version, text, payload = _FIELDS.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise DamagedError(f"It begins with {magic!r} and version {version}, not with {MAGIC!r} and {VERSION}.")
    if len(data) != _FIELDS.size + text + payload + _DIGEST:
        raise DamagedError("It is not as long as it says.")
    content = memoryview(data)[:-_DIGEST]
    if digest(content) != data[-_DIGEST:]:
        raise DamagedError("Its checksum does not fit its content.")
    start = _FIELDS.size + text
    try:
        return json.loads(data[_FIELDS.size : start]), load(data[start : start + payload])
    except (ValueError, SafetensorError) as error:
        raise DamagedError(f"Its content cannot be read: {error}.") from None


def digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()
