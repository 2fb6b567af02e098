"""Frames that an honest encoder refuses to write."""

import struct
import zlib


def with_nan(frame: bytes) -> bytes:
    """A frame whose last number is not one, with a checksum that fits."""
    content = frame[:-8] + struct.pack("<f", float("nan"))
    return content + struct.pack("<I", zlib.crc32(content))
