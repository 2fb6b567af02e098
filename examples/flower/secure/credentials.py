"""Certificates and keys of a deployment: whom clients trust, and how the server knows them.

    python credentials.py FOLDER --server lab.example.org --server 192.0.2.7 --nodes 4

    ca.key       signs server certificates; keep it off line         ca.crt       everyone gets it
    server.key   the SuperLink's                                     server.crt   the SuperLink's, for the names given
    node-0.key   client 0's own, an EC key that stays with it        node-0.pub   is registered with the SuperLink

What is there already is kept, so that running it again adds nodes or replaces a server certificate that was deleted.
Needs `cryptography`, which comes with Flower.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PEM = serialization.Encoding.PEM
SLACK = timedelta(hours=1)
"""Certificates begin so long ago, for clocks that are behind."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = authority(folder, 10 * options.days)
    made += server(folder, options.server, options.days)
    made += [file for i in range(options.nodes) for file in node(folder, f"node-{i}")]
    print(f"{folder}: made {', '.join(made) if made else 'nothing, all of it was there'}.")
    return 0


def authority(folder: Path, days: int) -> list[str]:
    """The root that signs; made once per deployment."""
    if (folder / "ca.crt").exists():
        return []
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("fedcef deployment")
    builder = _certificate(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    _secret(folder / "ca.key", _pem(key))
    (folder / "ca.crt").write_bytes(builder.sign(key, hashes.SHA384()).public_bytes(PEM))
    return ["ca.key", "ca.crt"]


def server(folder: Path, names: list[str], days: int) -> list[str]:
    """The SuperLink's certificate, for all names under which it is reached."""
    if (folder / "server.crt").exists():
        return []
    if not names:
        sys.exit("Give the names or addresses of the server, for example --server lab.example.org.")
    if not (folder / "ca.key").exists():
        sys.exit(f"{folder / 'ca.key'} is needed to sign a server certificate, and is not there.")
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    root = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = ec.generate_private_key(ec.SECP384R1())
    builder = _certificate(_name(names[0]), root.subject, key.public_key(), days)
    builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(signed_by, critical=False)
    _secret(folder / "server.key", _pem(key))
    (folder / "server.crt").write_bytes(builder.sign(signer, hashes.SHA384()).public_bytes(PEM))
    return ["server.key", "server.crt"]


def node(folder: Path, name: str) -> list[str]:
    """A client's key pair, in the format that Flower reads."""
    if (folder / f"{name}.pub").exists():
        return []
    key = ec.generate_private_key(ec.SECP384R1())
    _secret(folder / f"{name}.key", _pem(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(public + f" {name}\n".encode())
    return [f"{name}.key", f"{name}.pub"]


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(signs: bool) -> x509.KeyUsage:
    rest = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    off = dict.fromkeys([*rest, "decipher_only"], False)
    return x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **off)


def _pem(
    key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    return key.private_bytes(PEM, form, serialization.NoEncryption())


def _secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Certificates and keys of a deployment.")
    parser.add_argument("folder", type=Path, help="where they go; not a folder that is shared or versioned")
    parser.add_argument(
        "--server", action="append", default=[], help="a name or address of the server; may be repeated"
    )
    parser.add_argument("--nodes", type=int, default=0, help="how many clients have keys: node-0 to node-(n-1)")
    parser.add_argument(
        "--days", type=int, default=365, help="how long the server's certificate is valid (default 365)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
