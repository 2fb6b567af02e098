"""Keys of clients as credentials.py makes them, in files."""

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

OPENSSH = (Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def new_key():
    return ec.generate_private_key(ec.SECP384R1())


def written(folder, keys):
    """Files of private keys, and one with the public ones."""
    for client, key in enumerate(keys):
        (folder / f"node-{client}.key").write_bytes(key.private_bytes(*OPENSSH))
    lines = [key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) for key in keys]
    (folder / "peers.pub").write_bytes(b"\n".join(lines) + b"\n")
    return [(folder / f"node-{client}.key", folder / "peers.pub") for client in range(len(keys))]
