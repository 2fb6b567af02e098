"""What `fedcef doctor deployment` looks at, on a server or on a client: code, environment, secrets, clock, disk."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib import metadata
from pathlib import Path
from typing import Any

from fedcef.cli.diagnosis import LITTLE_DISK, Finding, Status, collected
from fedcef.core.amounts import format_bytes
from fedcef.core.extras import install, needed
from fedcef.core.origin import fingerprint, installed_from

SOON_DAYS = 30
AHEAD_S, BEHIND_S = 5.0, 300.0
"""How far a client's clock may be ahead of the server's, and behind it: beyond that Flower refuses its signatures."""
WANTED = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}


@dataclass(frozen=True)
class Places:
    """Where to look; what is not given is left out."""

    secrets: Path | None = None
    server: str | None = None
    folders: tuple[Path, ...] = ()


def examine_deployment(places: Places) -> list[Finding]:
    """Everything, in the order in which it is shown."""
    return collected(
        ("Code", code),
        ("Environment", environment),
        ("Secrets", lambda: secrets(places.secrets) if places.secrets else iter(())),
        ("Clock", lambda: clock(places)),
        ("Disk", lambda: folders(places.folders)),
    )


def code() -> Iterator[Finding]:
    """Which fedcef this is and where it came from, and which Flower."""
    where = installed_from()
    found = f"{metadata.version('fedcef')}, code {fingerprint()}, from {where or 'a package index, by its name'}"
    yield Finding("Code", "fedcef", "ok" if where else "broken", found,
                  "" if where else "the name is not ours there; install from a checkout")  # fmt: skip
    wanted = next(line.partition(";")[0] for line in metadata.requires("fedcef") or [] if line.startswith("flwr"))
    try:
        version = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        yield Finding("Code", "flwr", "broken", "not installed", install(wanted.strip()))
        return
    right = version.startswith("1.41.")
    yield Finding("Code", "flwr", "ok" if right else "broken", version, "" if right else install(wanted.strip()))


def environment() -> Iterator[Finding]:
    """Variables without which Flower fetches packages or calls home."""
    for name, value in WANTED.items():
        found = os.environ.get(name, "not set")
        status: Status = "ok" if found == value else "broken" if "INSTALLATION" in name else "missing"
        yield Finding("Environment", name, status, found, "" if found == value else f"export {name}={value}")


def secrets(folder: Path) -> Iterator[Finding]:
    """Certificates that end soon, do not fit, and keys that others can read."""
    if not folder.is_dir():
        yield Finding("Secrets", str(folder), "broken", "there is no such folder", "give the one with the keys")
        return
    x509 = needed("cryptography.x509", "certificates", "flower")
    found = {}
    for path in sorted(folder.glob("*.crt")):
        try:
            found[path.name] = x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError) as error:
            yield Finding("Secrets", path.name, "broken", f"no certificate: {error}", "put back the right file")
    for name, certificate in found.items():
        left = (certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds() / 86400
        until = f"until {certificate.not_valid_after_utc:%Y-%m-%d}, {left:.0f} days"
        again = "make another (credentials.py), replace the file, restart SuperLink and gate"
        early = certificate.not_valid_before_utc > datetime.now(UTC)
        status: Status = "broken" if left <= 0 or early else "missing" if left < SOON_DAYS else "ok"
        said = f"valid from {certificate.not_valid_before_utc} only: the clock?" if early else until
        yield Finding("Secrets", name, status, said, "" if status == "ok" else again)
    if {"ca.crt", "server.crt"} <= found.keys():
        try:
            found["server.crt"].verify_directly_issued_by(found["ca.crt"])
        except Exception as error:  # of several kinds
            yield Finding(
                "Secrets", "server.crt", "broken", f"not signed by ca.crt: {error}", "put back the right pair"
            )
    yield from pairs(folder, found)
    for path in sorted(folder.glob("*.key")):
        mode = stat.S_IMODE(path.stat().st_mode)
        private = os.name == "nt" or not mode & 0o077
        yield Finding("Secrets", path.name, "ok" if private else "broken", f"rights {mode:o}",
                      "" if private else f"chmod 600 {path}")  # fmt: skip
    if (folder / "ca.key").exists():
        yield Finding(
            "Secrets", "ca.key", "missing", "it is on this machine", "keep it off line: it signs certificates"
        )


def pairs(folder: Path, certificates: Mapping[str, Any]) -> Iterator[Finding]:
    """What is missing, and halves that do not belong together."""
    if not (folder / "ca.crt").exists():
        yield Finding("Secrets", "ca.crt", "broken", "it is missing", "get it from whoever made the certificates")
    if (folder / "server.key").exists() and not (folder / "server.crt").exists():
        yield Finding("Secrets", "server.crt", "broken", "it is missing", "make another (credentials.py)")
    for path in sorted(folder.glob("*.key")):
        try:
            own = _public(path)
            halves = {half.name: _public(half) for half in [path.with_suffix(".pub")] if half.exists()}
        except (OSError, ValueError, TypeError) as error:
            yield Finding("Secrets", path.name, "broken", f"no key: {error}", "put back the right file")
            continue
        if certificate := certificates.get(f"{path.stem}.crt"):
            halves[f"{path.stem}.crt"] = _in_pem(certificate.public_key())
        for name in (name for name, half in halves.items() if half != own):
            yield Finding("Secrets", name, "broken", f"not of {path.name}", "put back the right pair")


def _public(path: Path) -> bytes:
    """The public key of a file that holds one, or a private one."""
    keys = needed("cryptography.hazmat.primitives.serialization", "keys", "flower")
    data = path.read_bytes()
    if path.suffix == ".pub":
        return _in_pem(keys.load_ssh_public_key(data))
    load = keys.load_ssh_private_key if b"OPENSSH" in data[:40] else keys.load_pem_private_key
    return _in_pem(load(data, None).public_key())


def _in_pem(key: Any) -> bytes:
    keys = needed("cryptography.hazmat.primitives.serialization", "keys", "flower")
    return bytes(key.public_bytes(keys.Encoding.PEM, keys.PublicFormat.SubjectPublicKeyInfo))


def clock(places: Places) -> Iterator[Finding]:
    """This clock against the server's, by what it says over HTTP."""
    if places.server is None:
        yield Finding("Clock", "clock", "missing", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, not compared",
                      "give --server HOST:PORT")  # fmt: skip
        return
    try:
        ahead = time.time() - _time_of(places.server, places.secrets)
    except (OSError, HTTPException, ValueError, TypeError) as error:
        yield Finding("Clock", places.server, "broken", f"no answer: {error}", "is it the gate's address, and up?")
        return
    good = -BEHIND_S < ahead < AHEAD_S
    word = "ahead of" if ahead > 0 else "behind"
    yield Finding("Clock", "clock", "ok" if good else "broken", f"{abs(ahead):.0f} s {word} {places.server}",
                  "" if good else "set it by NTP: such a node is turned away without a reason")  # fmt: skip


def folders(paths: tuple[Path, ...]) -> Iterator[Finding]:
    """Room where states and runs are kept, and who can read them."""
    for path in paths:
        existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        free, mode = shutil.disk_usage(existing).free, stat.S_IMODE(existing.stat().st_mode)
        found = f"{format_bytes(free)} free"
        if not os.access(existing, os.W_OK):
            yield Finding("Disk", str(path), "broken", "cannot be written", "give this user the rights to it")
        elif free < LITTLE_DISK:
            yield Finding("Disk", str(path), "broken", found, "make room: docs/deployment.md says how much is needed")
        elif os.name != "nt" and existing == path.absolute() and mode & 0o077:
            yield Finding("Disk", str(path), "broken", f"{found}, rights {mode:o}", f"chmod 700 {path}")
        else:
            yield Finding("Disk", str(path), "ok", found)


def _time_of(server: str, folder: Path | None) -> float:
    """What the server says the time is; a refusal has a date too."""
    authority = folder / "ca.crt" if folder and (folder / "ca.crt").exists() else None
    if authority:
        trust = ssl.create_default_context(cafile=authority)
        connection: HTTPConnection = HTTPSConnection(server, context=trust, timeout=10)
    else:
        connection = HTTPConnection(server, timeout=10)
    try:
        connection.request("GET", "/health")
        date = connection.getresponse().headers["Date"]
        return parsedate_to_datetime(date).timestamp()
    finally:
        connection.close()
