"""Which fedcef this is: where it was installed from, and a fingerprint of its code.

The name is not registered at the package index yet.  Whoever registers it has code run wherever `fedcef` is installed
by its name.  So no app here depends on the package by name, and an installation can be asked where it came from.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import metadata
from pathlib import Path

HEX_DIGITS = 16


@cache
def fingerprint() -> str:
    """A digest of the package's source files: equal on machines that have the same code."""
    state, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        state.update(f"{path.relative_to(root).as_posix()} {len(content)} ".encode() + content)
    return state.hexdigest()[:HEX_DIGITS]


def installed_from(package: str = "fedcef") -> str:
    """The folder, file or repository that the package was installed from; "" if from an index, by its name."""
    try:
        told = metadata.distribution(package).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return str(Path(__file__).parents[1])  # not installed: imported from where it lies
    return str(json.loads(told)["url"]).removeprefix("file://") if told else ""
