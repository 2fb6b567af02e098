"""Seconds per FedAvg round of this simulator, a plain PyTorch loop, Flower and pfl-research, in one interleaved run.

    python benchmarks/peers.py [--tasks softmax mlp mnist_cnn] [--repeats 2] [--patience 0] [--all] [--quick] [--write]

FedAvg by plain SGD on the CPU: softmax regression and a small MLP on scikit-learn's digits (100 of 1,000 clients a
round, 10 local steps of batch 10) and the paper's MNIST network on noise (10 clients, 10 local steps of batch 64).
Every measurement is a process of its own that plays two rounds to warm up and then times each round; the contenders
take turns within each repeat.  Until the patience (in minutes) is used up, a measurement waits while other processes
use the machine, and rounds that they disturbed do not count, whatever they took; if none is left it is done again.  A
contender that is not installed is left out.  None is a dependency of the project:

    python3 -m venv /tmp/peers-venv
    /tmp/peers-venv/bin/pip install -e '.[data]' 'flwr[simulation]' pfl
    /tmp/peers-venv/bin/python benchmarks/peers.py --write
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from contenders import TASKS, WARM_UP, Contender, contenders
from measure import machine, table, write

RECORD = Path(__file__).parent / "results" / "peers.json"
DISTURBED = 0.1  # of a core: a round counts if other processes use less
MARK = "FEDCEF_PEERS"  # in the environment of everything that a measurement starts
Result = dict[str, Any]


class Others:
    """The CPU time of all processes that no measurement started."""

    def __init__(self) -> None:
        self.before = self.read()
        self.times, self.used = [time.perf_counter()], [0.0]

    def look(self, after: float) -> None:
        time.sleep(after)
        now = self.read()
        used = sum(max(seconds - self.before.get(process, 0.0), 0.0) for process, seconds in now.items())
        self.before = now
        self.times.append(time.perf_counter())
        self.used.append(self.used[-1] + used)

    def cores(self, begin: float, end: float) -> float:
        """How many cores they used in that time."""
        used = np.interp([begin, end], self.times, self.used)
        return float(used[1] - used[0]) / (end - begin)

    @staticmethod
    def read() -> dict[str, float]:
        seconds = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environment = (process / "environ").read_bytes()  # empty for the kernel's, and for one that just ended
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if environment and MARK.encode() not in environment and process.name != str(os.getpid()):
                    seconds[process.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return seconds


def undisturbed(task: str, name: str, contender: Contender, deadline: float) -> Result:
    """A measurement's rounds that had the machine to themselves, at least one; after the deadline, any."""
    while True:
        others = Others()
        while time.perf_counter() < deadline:
            others.look(after=2)
            if others.cores(*others.times[-2:]) < DISTURBED:
                break
        result = measured(task, name, contender)
        patient = time.perf_counter() < deadline
        result["rounds"] = [r for r in result["rounds"] if r["others"] < DISTURBED or not patient]
        if result["rounds"]:
            return result


def measured(task: str, name: str, contender: Contender) -> Result:
    """Play in a fresh process, with the threads that suit the contender and no way to call home."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        result = Path(folder) / "result.json"
        # imported, not run: Ray's workers then find the clients' data by name instead of unpacking it in every round
        play = f"import pathlib, contenders as c; c.measured_here({task!r}, {name!r}, pathlib.Path({str(result)!r}))"
        launcher = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={contender.processes}",
            "--no-python",
        ]
        command = [sys.executable, *(launcher if contender.torchrun else []), sys.executable, "-c", play]
        environment = {
            MARK: "1",
            "OMP_NUM_THREADS": str(contender.threads),
            "FLWR_HOME": folder,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PFL_PYTORCH_DEVICE": "cpu",
            "CUDA_VISIBLE_DEVICES": "",
        }
        others = Others()
        process = subprocess.Popen(
            command if contender.torchrun else command[1:],
            cwd=Path(__file__).parent,
            env=os.environ | environment,
            stdout=log,
            stderr=log,
        )
        while process.poll() is None:
            others.look(after=0.25)
        if not result.exists():  # whatever becomes of it after it has written this does not matter
            log.seek(0)
            lines = re.findall(r"^[\w.]*Error: .*|^terminate called.*", log.read(), re.MULTILINE)
            causes = [line for line in lines if "ChildFailedError" not in line]  # which is only what torchrun says then
            raise RuntimeError(causes[0] if causes else f"its process ended with {process.returncode} and no result")
        found = json.loads(result.read_text())
        times = found.pop("times")
        return found | {"rounds": [{"seconds": b - a, "others": others.cores(a, b)} for a, b in pairwise(times)]}


def played(task: str, repeats: int, deadline: float, everyone: bool) -> Result:
    """One task by all contenders in turn, as a table and for the record."""
    about = TASKS[task]
    print(f"{about.about}: {about.cohort} of {about.clients} clients x {about.steps} steps x batch {about.batch}")
    playing = {name: c for name, c in contenders(task).items() if not c.missing() and (everyone or not c.is_slower)}
    kept: dict[str, list[Result]] = {name: [] for name in playing}
    for _ in range(repeats):
        for name, contender in playing.items():
            try:
                kept[name].append(undisturbed(task, name, contender, deadline))
            except RuntimeError as error:
                print(f"  a measurement of {name} has failed: {error}", flush=True)
    kept = {name: results for name, results in kept.items() if results}
    seconds = {name: [r["seconds"] for result in results for r in result["rounds"]] for name, results in kept.items()}
    result = table(seconds, "plain loop")
    medians = result["median_s"]
    ours, theirs = ({n: s for n, s in medians.items() if n.startswith("fedcef") == mine} for mine in (True, False))
    best, fastest = (min(times, key=times.__getitem__) for times in (ours, theirs))
    ratio = theirs[fastest] / ours[best]
    reached = {key: {name: [r.get(key) for r in kept[name]] for name in kept} for key in ("accuracy", "distance")}
    for key, values in reached.items():
        means = {name: statistics.fmean(found) for name, found in values.items() if None not in found}
        if means:
            print(f"  {key} reached: " + ", ".join(f"{mean:.4f} ({name})" for name, mean in means.items()))
    print(f"  {best} is faster than the fastest of the others ({fastest}) by {ratio:.2f}x", flush=True)
    return {
        "about": about.about,
        "clients": about.clients,
        "clients_per_round": about.cohort,
        "local_steps": about.steps,
        "batch_size": about.batch,
        "settings": {n: {"processes": c.processes, "threads_each": c.threads} for n, c in playing.items() if n in kept},
        "rounds_per_repeat_at_most": about.rounds,
        **{key + ("_from_start" if key == "distance" else ""): values for key, values in reached.items()},
        "cores_used_by_others": {name: [r["others"] for one in kept[name] for r in one["rounds"]] for name in kept},
        "fastest": [best, fastest],
        "faster_than_the_fastest": ratio,
        **result,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="also the slower of two ways to use Flower and pfl-research")
    parser.add_argument("--quick", action="store_true", help="one repeat")
    parser.add_argument("--patience", type=float, default=0, help="minutes to wait for a quiet machine, in all")
    parser.add_argument("--write", action="store_true", help="keep the tasks' results in benchmarks/results/peers.json")
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else arguments.repeats

    for package in sorted({c.missing() for c in contenders(arguments.tasks[0]).values()} - {""}):
        print(f"Contenders that need {package} are left out: it is not installed here (pip install '{package}').")
    print(f"FedAvg; {machine()}", flush=True)
    deadline = time.perf_counter() + 60 * arguments.patience
    results = {task: played(task, repeats, deadline, arguments.all) for task in arguments.tasks}
    if arguments.write:
        packages = {package: version(package) for package in ("flwr", "ray", "pfl") if find_spec(package)}
        where = {"machine": machine() | packages, "repeats": repeats, "warm_up_rounds": WARM_UP}
        write("peers", {"tasks": recorded() | {task: where | result for task, result in results.items()}})


def recorded() -> dict[str, Result]:
    """The tasks that were measured before, which stay if they are not measured again."""
    tasks: dict[str, Result] = json.loads(RECORD.read_text())["tasks"] if RECORD.exists() else {}
    return tasks


if __name__ == "__main__":
    main()
