"""The names of clients that are known by their public keys."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from fedcef.core.errors import ConfigError
from fedcef.core.extras import needed

NAME = re.compile(r"key-[0-9a-f]{32}")


def key_name(public_key: bytes) -> str:
    """The name of whoever has this key, which is given as Flower has it, in PEM."""
    return f"key-{hashlib.sha256(public_key).hexdigest()[:32]}"


def name_of(given: str) -> str:
    """The name of a key that is given by its name, or by the file of a public key in OpenSSH's format (node-0.pub)."""
    if NAME.fullmatch(given):
        return given
    serialization = needed("cryptography.hazmat.primitives.serialization", "keys", "flower")
    try:
        key = serialization.load_ssh_public_key(Path(given).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{given} is neither a key's name (key- and 32 hexadecimal digits) nor a file with a public key in "
            f"OpenSSH's format: {error}."
        ) from None
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key_name(key.public_bytes(*form))
