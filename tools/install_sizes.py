"""Megabytes and seconds of installing fedcef, and of each extra on top: a table for docs/contributing.md.

    python tools/install_sizes.py dist/fedcef-*.whl [--extras data,plot,...]

Every extra is installed into a copy of an environment that holds the core alone, with the versions of constraints.txt.
Seconds depend on the network, so the packages are fetched first; what is left is resolving, unpacking and compiling, in
seconds of processor time, which other work on the machine hardly changes.  Megabytes downloaded are those of wheels.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--extras", help="a few of them, with commas; by default those that are for users")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    ours = [name for name in project["optional-dependencies"] if name not in ("browser", "docs", "test", "lint", "dev")]
    extras = options.extras.split(",") if options.extras else ours
    print(f"Python {sys.version.split()[0]}, {sys.platform}\n")
    print("| installed | MB on disk | MB downloaded | processor, s |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work, wheel = Path(folder), options.wheel.resolve()
        subprocess.run([sys.executable, "-m", "venv", work / "core"], check=True)
        empty = size(work / "core")
        core_wheels = fetch(str(wheel), work)
        seconds = install(str(wheel), work / "core", work)
        core = size(work / "core")
        print(f"| core | {core - empty:.0f} | {core_wheels:.0f} | {seconds:.0f} |", flush=True)
        for extra in extras:
            try:
                wheels = fetch(f"{wheel}[{extra}]", work)
            except subprocess.CalledProcessError:
                print(f"| `[{extra}]` | cannot be installed here | | |", flush=True)
                continue
            shutil.copytree(work / "core", work / "more", symlinks=True)
            seconds = install(f"{wheel}[{extra}]", work / "more", work)
            on_disk, fetched = size(work / "more") - core, wheels - core_wheels
            print(f"| `[{extra}]` | +{on_disk:.0f} | +{fetched:.0f} | +{seconds:.0f} |", flush=True)
            shutil.rmtree(work / "more")


def fetch(what: str, work: Path) -> float:
    """Download what something needs, as wheels, and how many megabytes they have."""
    shutil.rmtree(work / "wheels", ignore_errors=True)
    run(sys.executable, "wheel", "-w", work / "wheels", "-c", ROOT / "constraints.txt", what)
    return size(work / "wheels")


def install(what: str, environment: Path, work: Path) -> float:
    """Install from what was fetched; the seconds of processor time it took."""
    start = _processor_s()
    run(
        environment / "bin/python", "install", "--no-index", "--find-links", work / "wheels",
        "-c", ROOT / "constraints.txt", what,
    )  # fmt: skip
    return _processor_s() - start


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
