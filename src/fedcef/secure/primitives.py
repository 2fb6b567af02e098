"""The cryptography of secure aggregation, all of it from libraries that Flower brings along.

    key agreement    X25519, HKDF-SHA-256 over the session and both public keys     cryptography
    sealing          ChaCha20-Poly1305, one message for each key                    cryptography
    masks            AES-256 in counter mode, of zeros                              cryptography
    secret sharing   Shamir's over GF(2^128)                                        pycryptodome

Flower's own SecAgg+ has the same pieces, of which two cannot be used: its masks come from NumPy's generator, seeded
with 32 bits, which can be tried out, and they never take the largest value; its keys are PEM files of 300 bytes, whose
shares take twenty polynomials where a seed of 16 bytes takes one.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcef.core.errors import ConfigError, RunError
from fedcef.core.extras import install_extra

Whole = NDArray[np.uint32]
"""Numbers modulo 2^b."""

SEED, KEY, SEAL = 16, 32, 16
"""Bytes of a seed and of its share, of a public key, and of what sealing adds."""


class SecureError(RunError):
    """What a participant of secure aggregation does not accept."""


def new_seed() -> bytes:
    """16 bytes from the operating system."""
    return secrets.token_bytes(SEED)


def public_key(seed: bytes) -> bytes:
    """The public key whose private key follows from a seed."""
    return bytes(_private(seed).public_key().public_bytes_raw())


def agreed(seed: bytes, theirs: bytes, session: bytes, purpose: bytes) -> bytes:
    """32 bytes that only the owners of two keys have, for one session and one purpose."""
    x25519 = _hazmat("primitives.asymmetric.x25519")
    try:
        secret = _private(seed).exchange(x25519.X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:  # of low order, or of another length
        raise SecureError(f"A public key is none that can be used: {error}.") from None
    both = b"".join(sorted([public_key(seed), theirs]))
    return _derived(bytes(secret), session + both, purpose)


def sealed(key: bytes, text: bytes, what: bytes) -> bytes:
    """A text that only those with the key can read, and nobody can change; a key is for one text only."""
    return bytes(_hazmat("primitives.ciphers.aead").ChaCha20Poly1305(key).encrypt(bytes(12), text, what))


def opened(key: bytes, data: bytes, what: bytes) -> bytes:
    """The text that was sealed with this key, for this purpose."""
    try:
        return bytes(_hazmat("primitives.ciphers.aead").ChaCha20Poly1305(key).decrypt(bytes(12), data, what))
    except library("cryptography.exceptions").InvalidTag:
        raise SecureError("A share cannot be opened: it was changed, or is for somebody else.") from None


def mask(key: bytes, count: int, bits: int) -> Whole:
    """So many numbers modulo 2^bits, which look uniform to all who have not the key; 16 or 32 bytes."""
    ciphers = _hazmat("primitives.ciphers")
    cipher = ciphers.Cipher(ciphers.algorithms.AES(_derived(key, b"", b"mask")), ciphers.modes.CTR(bytes(16)))
    stream = cipher.encryptor().update(bytes(4 * count))
    return np.frombuffer(stream, dtype="<u4") & np.uint32((1 << bits) - 1)


def shared_out(seed: bytes, threshold: int, among: Sequence[int]) -> dict[int, bytes]:
    """Shares of a seed, any `threshold` of which give it, and fewer nothing."""
    split = library("Crypto.Protocol.SecretSharing").Shamir.split
    if threshold < 2:
        raise SecureError("A seed is shared so that at least two must agree to reveal it.")
    return {who: bytes(share) for who, (_, share) in zip(among, split(threshold, len(among), seed), strict=True)}


def put_together(shares: Mapping[int, bytes], threshold: int, among: Sequence[int]) -> bytes:
    """The seed that was shared out among these, from the shares of `threshold` of them."""
    combine = library("Crypto.Protocol.SecretSharing").Shamir.combine
    places = {who: place + 1 for place, who in enumerate(among)}
    some = sorted((places[who], share) for who, share in shares.items() if who in places)[:threshold]
    if len(some) < threshold:
        raise SecureError(f"{len(some)} shares are there, of which it takes {threshold}.")
    return bytes(combine(some))


def _private(seed: bytes) -> Any:
    return _hazmat("primitives.asymmetric.x25519").X25519PrivateKey.from_private_bytes(_derived(seed, b"", b"key"))


def _derived(secret: bytes, about: bytes, purpose: bytes) -> bytes:
    hashes, hkdf = _hazmat("primitives.hashes"), _hazmat("primitives.kdf.hkdf")
    info = b"fedcef secure aggregation: " + purpose + b"\0" + about
    return bytes(hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret))


def _hazmat(name: str) -> Any:
    return library(f"cryptography.hazmat.{name}")


def library(name: str) -> Any:
    """A module of those packages."""
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(
            "Secure aggregation needs the packages cryptography and pycryptodome, which Flower brings along; install "
            f"them with: {install_extra('flower')}"
        ) from None
