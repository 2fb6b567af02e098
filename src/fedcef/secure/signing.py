"""Signatures under the public keys of a session, by the keys that clients have for good.

With them a server cannot put keys of its own in the place of a client's.  A client reads its own key and those of all
clients from files that somebody gave it, not from anything that came with the run: that comes from the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcef.core.errors import ConfigError
from fedcef.secure.primitives import SecureError, library

HALF = 48
SIGNATURE = 2 * HALF
"""Bytes of a signature: r and s of ECDSA over P-384."""
_PURPOSE = b"fedcef secure aggregation: public keys\0"


@dataclass(frozen=True)
class Signing:
    """A client's own key, and everyone's public ones, by their numbers."""

    key: Any
    peers: tuple[Any, ...]

    @classmethod
    def read(cls, key: Path, peers: Path) -> Signing:
        """The files: a private key of OpenSSH's format, and one with a line for each client's public key, from 0 on."""
        load = library("cryptography.hazmat.primitives.serialization")
        public = tuple(_key(peers, load.load_ssh_public_key, line) for line in _content(peers).splitlines())
        return cls(_key(key, load.load_ssh_private_key, _content(key), None), public)

    def sign(self, text: bytes) -> bytes:
        """This client's signature."""
        form = library("cryptography.hazmat.primitives.asymmetric.utils")
        r, s = form.decode_dss_signature(self.key.sign(_PURPOSE + text, _ecdsa()))
        return bytes(r.to_bytes(HALF, "big") + s.to_bytes(HALF, "big"))

    def check(self, client: int, text: bytes, signature: bytes) -> None:
        """Refuse what this client has not signed."""
        form = library("cryptography.hazmat.primitives.asymmetric.utils")
        r, s = (int.from_bytes(half, "big") for half in (signature[:HALF], signature[HALF:]))
        try:
            self.peers[client].verify(form.encode_dss_signature(r, s), _PURPOSE + text, _ecdsa())
        except IndexError:
            raise SecureError(f"There is no key of client {client} among this client's secure-peers.") from None
        except library("cryptography.exceptions").InvalidSignature:
            how = "another key than that in this client's secure-peers" if signature else "no key"
            raise SecureError(
                f"The public keys of client {client} are signed by {how}; the server, or somebody between, may have "
                "put them in place of its own."
            ) from None


def _ecdsa() -> Any:
    hashes = library("cryptography.hazmat.primitives.hashes")
    return library("cryptography.hazmat.primitives.asymmetric.ec").ECDSA(hashes.SHA384())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from None


def _key(path: Path, load: Any, *content: Any) -> Any:
    try:
        key = load(*content)
        if key.curve.name == "secp384r1":
            return key
    except (ValueError, TypeError, AttributeError):
        pass
    raise ConfigError(f"{path} has a key that is none of P-384 in OpenSSH's format; credentials.py makes such ones.")
