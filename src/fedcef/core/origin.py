"""Which fedcef this is: where it was installed from, and a fingerprint of its code.

The name is not registered at the package index yet.  Whoever registers it has code run wherever `fedcef` is installed
by its name.  So no app here depends on the package by name, and an installation can be asked where it came from.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote

HEX_DIGITS = 16


@cache
def fingerprint() -> str:
    """A digest of the package's source files: equal on machines that have the same code."""
    state, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        state.update(f"{path.relative_to(root).as_posix()} {len(content)} ".encode() + content)
    return state.hexdigest()[:HEX_DIGITS]


@dataclass(frozen=True)
class Origin:
    """Where an installation of fedcef came from."""

    place: str
    """A folder, a file or the address of a repository; "" for a package index."""
    editable: bool = False
    """Whether the code runs from where it lies."""

    @classmethod
    def here(cls) -> Origin:
        """The origin of the fedcef that is running."""
        try:
            told = metadata.distribution("fedcef").read_text("direct_url.json")
        except metadata.PackageNotFoundError:  # not installed: imported from where it lies
            return cls(str(Path(__file__).parents[3]), editable=True)
        if not told:
            return cls("")
        direct = json.loads(told)
        if "vcs_info" in direct:
            commit = direct["vcs_info"].get("commit_id", "")
            return cls(f"{direct['vcs_info']['vcs']}+{direct['url']}" + f"@{commit}" * bool(commit))
        place = unquote(direct["url"].removeprefix("file://")) if direct["url"].startswith("file://") else direct["url"]
        return cls(place, editable=bool(direct.get("dir_info", {}).get("editable")))

    @property
    def is_there(self) -> bool:
        """Whether it can be installed from there again; not if it was a file or a folder that is gone."""
        return not self.place.startswith("/") or Path(self.place).exists()

    def requirement(self, extra: str = "") -> str:
        """What to hand to pip so that this fedcef is installed again, with an extra."""
        name = f"[{extra}]" if extra else ""
        if not self.place:
            return f"fedcef{name}"
        if not self.place.startswith("/"):
            return f"fedcef{name} @ {self.place}"
        return ("." if Path(self.place) == Path.cwd() else self.place) + name


def installed_from() -> str:
    """The folder, file or repository that the package was installed from; "" if from an index, by its name."""
    return Origin.here().place


def requirements(extra: str = "") -> list[str]:
    """What an extra asks for, or with "" what everyone needs, as this installation's metadata says it."""
    found = []
    for line in metadata.requires("fedcef") or []:
        wanted, _, marker = (part.strip() for part in line.partition(";"))
        named = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if (named[1] if named else "") == extra and not wanted.startswith("fedcef"):
            found.append(wanted)
    return found
