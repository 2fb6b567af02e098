"""A name in bytes: its length, 1 to 255, in one byte, and then its UTF-8."""

from __future__ import annotations

from fedcef.wire.reader import Reader, WireError


def encode_name(name: str, of: str) -> bytes:
    """The bytes of a name; `of` says whose it is."""
    encoded = name.encode()
    if not 1 <= len(encoded) <= 255:
        raise WireError(f"{of.capitalize()} name {name!r} has {len(encoded)} bytes; 1 to 255 are allowed.")
    return bytes([len(encoded)]) + encoded


def name_nbytes(name: str) -> int:
    """How many bytes `encode_name` gives."""
    return 1 + len(name.encode())


def read_name(reader: Reader, of: str) -> str:
    """The next name."""
    (length,) = reader.take(1, f"a {of}'s name length")
    if length == 0:
        raise WireError(f"A {of} has an empty name; 1 to 255 bytes are allowed.")
    encoded = bytes(reader.take(length, f"a {of}'s name"))
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise WireError(f"The {of} name {encoded!r} is not valid UTF-8.") from None
