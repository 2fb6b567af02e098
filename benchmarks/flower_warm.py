"""What a message's process costs before it does anything: started anew, and copied from one that waits.

    python benchmarks/flower_warm.py [--repeats 7] [--write]

CPU seconds of `flwr-clientapp` until the app is loaded, by kind of app, in turns; medians.  Data and training are in
neither.  The small script that calls the waiting process is counted with the copy.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import machine, write

from fedcef.flower import warm

FLOWER = "import flwr.supernode.cli.flwr_clientapp\n"
APPS = {
    "Flower alone": "",
    "an app in NumPy": "import numpy\n",
    "the same with compressed()": "import numpy\nfrom fedcef.flower import compressed\ncompressed()\n",
    "an app in PyTorch": "import torch\n",
    "the same with compressed()  ": "import torch\nfrom fedcef.flower import compressed\ncompressed()\n",
    "ours": "import fedcef.flower.client_app, fedcef.flower.run_client\n",
}
TELL = "import resource; used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)\n"


def children() -> float:
    """CPU seconds of all that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cold(code: str) -> float:
    """A new process."""
    before = children()
    subprocess.run([sys.executable, "-c", FLOWER + code], check=True)
    return children() - before


def copied(script: Path, code: str) -> float:
    """The script, and the copy that it asked for, which tells its own."""
    before = children()
    said = subprocess.run([script, FLOWER + code + TELL], check=True, capture_output=True, text=True).stdout
    return children() - before + float(said)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/flower_warm.json")
    arguments = parser.parse_args()
    folder, parent = Path(tempfile.mkdtemp()), os.getpid()
    waiting = warm.opened(folder, "/bin/false")
    if os.fork() == 0:
        sys.exit(warm.served(waiting, folder, warm.IMPORTED, parent, lambda: exec(sys.argv[1], {})))
    waiting.close()
    found: dict[str, dict[str, list[float]]] = {name: {"cold": [], "warm": []} for name in APPS}
    for turn in range(arguments.repeats + 1):
        for name, code in APPS.items():
            times = {"cold": cold(code), "warm": copied(folder / warm.PROGRAM, code)}
            for kind, seconds in times.items():
                found[name][kind] += [seconds] if turn else []  # the first turn fills the disk's cache
    rows = []
    for name, kinds in found.items():
        medians = {kind: statistics.median(seconds) for kind, seconds in kinds.items()}
        print(f"  {name:28} anew {medians['cold']:.2f} s, copied {medians['warm']:.2f} s", flush=True)
        rows.append({"app": name.strip(), **medians})
    if arguments.write:
        write("flower_warm", {"machine": machine(), "cpu_seconds": rows})


if __name__ == "__main__":
    main()
