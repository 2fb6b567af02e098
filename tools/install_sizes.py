"""Megabytes and seconds of installing fedcef, and of each extra on top: a table for docs/contributing.md.

    python tools/install_sizes.py dist/fedcef-*.whl [--extras data,plot,...]
    python tools/install_sizes.py --here        only megabytes on disk, in an environment that has the extras already

Every extra is installed into a copy of an environment that holds the core alone, with the versions of constraints.txt.
The packages are fetched first, which takes as long as the network and pip's cache let it; what is left is resolving,
unpacking and compiling.  Megabytes downloaded are those of wheels.  Seconds of processor time are those of installing:
other work on the machine hardly changes them.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, nargs="?")
    parser.add_argument("--here", action="store_true", help="look at the files of what is installed here")
    parser.add_argument("--extras", help="a few of them, with commas; by default those that are for users")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    ours = [name for name in project["optional-dependencies"] if name not in ("browser", "docs", "test", "lint", "dev")]
    extras = options.extras.split(",") if options.extras else ours
    if options.here:
        of_installed(extras)
        return
    if options.wheel is None:
        parser.error("give a wheel, or --here")
    print(f"Python {sys.version.split()[0]}, {sys.platform}\n")
    print("| installed | MB on disk | MB downloaded | fetched, s | installed, s | processor, s |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work, wheel = Path(folder), options.wheel.resolve()
        subprocess.run([sys.executable, "-m", "venv", work / "core"], check=True)
        empty = size(work / "core")
        core_wheels, fetching = fetch(str(wheel), work)
        seconds, used = install(str(wheel), work / "core", work)
        core = size(work / "core")
        times = f"{fetching:.0f} | {seconds:.0f} | {used:.0f}"
        print(f"| core | {core - empty:.0f} | {core_wheels:.0f} | {times} |", flush=True)
        for extra in extras:
            try:
                wheels, fetching = fetch(f"{wheel}[{extra}]", work)
            except subprocess.CalledProcessError:
                print(f"| `[{extra}]` | cannot be installed here | | | | |", flush=True)
                continue
            shutil.copytree(work / "core", work / "more", symlinks=True)
            seconds, used = install(f"{wheel}[{extra}]", work / "more", work)
            on_disk, fetched = size(work / "more") - core, wheels - core_wheels
            times = f"{fetching:.0f} | +{seconds:.0f} | +{used:.0f}"
            print(f"| `[{extra}]` | +{on_disk:.0f} | +{fetched:.0f} | {times} |", flush=True)
            shutil.rmtree(work / "more")


def of_installed(extras: list[str]) -> None:
    """Print the megabytes of what the core and each extra bring, by the files of the packages here."""
    core = closure("fedcef", "")
    print(f"| core | {megabytes(core):.0f} |")
    known = metadata.metadata("fedcef").get_all("Provides-Extra") or []  # of when it was installed
    for extra in (extra for extra in extras if extra in known):
        more = closure("fedcef", extra) - core
        absent = sorted(name for name in more if not installed(name))
        print(f"| `[{extra}]` | " + (f"without {', '.join(absent)}" if absent else f"+{megabytes(more):.0f}") + " |")


def closure(package: str, extra: str) -> set[str]:
    """A package and all that it needs, with an extra, by their names."""
    found: set[str] = set()
    waiting = {(canonicalize_name(package), extra)}
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, wanted = waiting.pop()
        seen.add((name, wanted))
        found.add(name)
        for line in (metadata.requires(name) or []) if installed(name) else []:
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": one}) for one in ("", wanted)):
                more = {(canonicalize_name(needed.name), one) for one in ("", *needed.extras)}
                waiting |= more - seen
    return found


def installed(name: str) -> bool:
    """Whether there is such a package here."""
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def megabytes(names: set[str]) -> float:
    """Of the files of some packages; those that are not here have none."""
    files = [file for name in names if installed(name) for file in metadata.files(name) or []]
    places = {Path(str(file.locate())) for file in files}
    return sum(place.stat().st_size for place in places if place.is_file()) / 1e6


def fetch(what: str, work: Path) -> tuple[float, float]:
    """Download what something needs, as wheels: how many megabytes they have, and the seconds it took."""
    shutil.rmtree(work / "wheels", ignore_errors=True)
    start = time.perf_counter()
    run(sys.executable, "wheel", "-w", work / "wheels", "-c", ROOT / "constraints.txt", what)
    return size(work / "wheels"), time.perf_counter() - start


def install(what: str, environment: Path, work: Path) -> tuple[float, float]:
    """Install from what was fetched; the seconds it took, and those of processor time."""
    start, used = time.perf_counter(), _processor_s()
    run(
        environment / "bin/python", "install", "--no-index", "--find-links", work / "wheels",
        "-c", ROOT / "constraints.txt", what,
    )  # fmt: skip
    return time.perf_counter() - start, _processor_s() - used


def _processor_s() -> float:
    """Seconds of processor time of all processes that have been started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(python: Path | str, command: str, *words: Path | str) -> None:
    subprocess.run([python, *PIP, command, *words], check=True, stderr=subprocess.DEVNULL)


def size(folder: Path) -> float:
    """Megabytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


if __name__ == "__main__":
    main()
