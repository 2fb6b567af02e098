"""What `fedcef doctor` looks at.

A finding is ok, missing (something optional is not here) or broken (runs will fail).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from fedcef.core.amounts import format_bytes
from fedcef.core.errors import FedcefError
from fedcef.core.extras import install, install_extra

Status = Literal["ok", "missing", "broken"]
OLDEST = (3, 11)
LITTLE_DISK = 1 << 30  # bytes; a long run's snapshots of many clients take more


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    group: str
    """The heading it stands under."""
    name: str
    status: Status
    found: str
    """What is there."""
    remedy: str = ""
    """What to do about it, if it is not ok."""

    @property
    def is_command(self) -> bool:
        """Whether the remedy is a command to copy, not advice in words."""
        return self.remedy.startswith("fedcef ") or (" install " in self.remedy and "pip" in self.remedy)


def examine() -> list[Finding]:
    """Everything, in the order in which it is shown; a look that fails is a finding itself."""
    return collected(
        ("Versions", versions),
        ("Device", device),
        ("A run", trial_run),
        ("Data", data_sets),
        ("Disk", disk),
        ("Optional", extras),
    )


def collected(*looks: tuple[str, Callable[[], Iterator[Finding]]]) -> list[Finding]:
    """The findings of some looks, each under its heading."""
    findings = []
    for group, look in looks:
        try:
            findings += list(look())
        except Exception as error:  # whatever is broken must not hide the rest
            sentence = str(error) if isinstance(error, FedcefError) else f"{type(error).__name__}: {error}"
            findings.append(Finding(group, "looking", "broken", sentence, install_extra("", "--force-reinstall")))
    return findings


def versions() -> Iterator[Finding]:
    """Python, and the packages that everyone needs."""
    enough = sys.version_info[:2] >= OLDEST
    yield Finding("Versions", "python", "ok" if enough else "broken", platform.python_version(),
                  "" if enough else f"install Python {'.'.join(map(str, OLDEST))} or newer")  # fmt: skip
    for package in ("fedcef", *_requirements().get("", [])):
        version = _version(package)
        yield Finding("Versions", package, "ok" if version else "broken", version or "not installed",
                      "" if version else install(package))  # fmt: skip


def device() -> Iterator[Finding]:
    """The CPU and the GPUs that torch sees."""
    import torch

    from fedcef.core.threads import cores

    yield Finding("Device", "cpu", "ok", f"{cores()} cores, {platform.machine()}")
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            card = torch.cuda.get_device_properties(i)
            yield Finding("Device", f"cuda:{i}", "ok", f"{card.name}, {card.total_memory / 2**30:.0f} GiB")
    elif torch.version.cuda is None:
        yield Finding("Device", "cuda", "missing", "this torch is built for CPUs only; runs use device = cpu")
    else:
        yield Finding("Device", "cuda", "missing", "torch sees no GPU; runs use device = cpu")


def trial_run() -> Iterator[Finding]:
    """Two rounds of FedCEF on synthetic data, written to disk and read back."""
    from fedcef.runs.folder import RunFolder
    from fedcef.runs.run import run
    from fedcef.runs.settings import Settings

    settings = Settings(
        rounds=2, num_clients=2, local_lr=0.01, data={"name": "lasso", "dim": 8, "samples": 4, "support": 2},
        compressor={"name": "topk", "ratio": 0.5},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        summary = run(settings, RunFolder(Path(folder) / "run"))
    yield Finding("A run", "two rounds", "ok", f"finished, objective {summary['objective']:.3g}")


def data_sets() -> Iterator[Finding]:
    """Which data sets are in the cache folder, whole."""
    from fedcef.problems.data.datasets import DATASETS, cache_folder

    place = cache_folder()
    for name, info in DATASETS.items():
        if not info.files and not info.by_hand:
            here = _version("scikit-learn") is not None
            yield Finding("Data", name, "ok" if here else "missing", "inside scikit-learn",
                          "" if here else install_extra("data"))  # fmt: skip
            continue
        folder = place / name
        absent = [file.name for file in info.files if not (folder / file.name).is_file()]
        absent += [file for file in info.by_hand if not (folder / file).is_file()]
        damaged = [file.name for file in info.files if file.name not in absent and not file.is_at(folder / file.name)]
        remedy = info.hand_advice(folder) if info.by_hand else f"fedcef data get {name}"
        if absent:
            yield Finding("Data", name, "missing", f"not in {folder}", remedy)
        elif damaged:
            yield Finding("Data", name, "missing", f"{', '.join(damaged)} damaged", remedy)
        else:
            yield Finding("Data", name, "ok", str(folder))


def disk() -> Iterator[Finding]:
    """Room and rights where runs and data go."""
    from fedcef.problems.data.datasets import cache_folder

    for name, path in (("this folder", Path.cwd()), ("data cache", cache_folder())):
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        free = shutil.disk_usage(existing).free
        found = f"{format_bytes(free)} free at {path}"
        if not os.access(existing, os.W_OK):
            remedy = "choose a folder with --out" if name == "this folder" else "set FEDCEF_DATA to one of yours"
            yield Finding("Disk", name, "broken", f"{path} cannot be written", remedy)
        elif free < LITTLE_DISK:
            yield Finding("Disk", name, "broken", found, "make room: runs need about a GB")
        else:
            yield Finding("Disk", name, "ok", found)


def extras() -> Iterator[Finding]:
    """The optional packages, as this installation's metadata names them."""
    for extra, packages in _requirements().items():
        if extra in ("", "all", "dev"):
            continue
        here = [f"{package} {version}" for package in packages if (version := _version(package))]
        absent = [package for package in packages if not _version(package)]
        if absent:
            yield Finding("Optional", extra, "missing", f"without {', '.join(absent)}", install_extra(extra))
        else:
            yield Finding("Optional", extra, "ok", ", ".join(here))


def _requirements() -> dict[str, list[str]]:
    """Extra -> the packages it asks for; those that everyone needs stand under ''."""
    found: dict[str, list[str]] = {"": []}
    for line in metadata.requires("fedcef") or []:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", line)
        if name and name[0] != "fedcef":
            found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
