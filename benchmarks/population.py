"""What a round costs as the number of clients grows from a thousand to a million: seconds, memory, time to build.

    python benchmarks/population.py [--repeats 2] [--quick] [--write]

100 clients a round, 10 local steps of batch 10, 20 samples of scikit-learn's digits each (`partition = "drawn"`), by
softmax regression and an MLP with the oracle `layered`; FedCEF (Top-5% both ways, states in memory and on a disk) and
FedAvg, which has no states.  Every measurement is a process of its own with one torch thread: five rounds to warm up,
then 50 of which each is timed; its memory is what the system says at the end.  Sizes take turns within each repeat.

Then a scaled test of a million stateful clients of a CNN with 1.6 million parameters: FedCEF with the signs of the
largest 1%, states on a disk without their zeros, 200 clients of whom 20 take part in each of 25 rounds; how many bytes
a client's state takes by how often it has taken part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from measure import machine, write
from torch import nn

from fedcef import FedAvg, FedCEF, Problem, TopK
from fedcef.algorithms.algorithm import Algorithm
from fedcef.core.amounts import format_bytes
from fedcef.core.memory import keep_freed_memory
from fedcef.problems.clients.drawn import drawn
from fedcef.problems.data.datasets import load
from fedcef.problems.models import MODELS
from fedcef.report.data.looks import COLORS, MARKERS
from fedcef.report.figures.figure import drawing
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.stores.row_codes import ROW_CODES

SIZES = (10**3, 10**4, 10**5, 10**6)
WARM_UP, ROUNDS = 5, 50
KINDS = {
    "FedAvg": ("fedavg", "memory"),
    "FedCEF, states in memory": ("fedcef", "memory"),
    "FedCEF, states on a disk": ("fedcef", "disk"),
}
CNN_CLIENTS, CNN_COHORT, CNN_ROUNDS = 200, 20, 25
BUDGET = 100e9  # bytes, for a million clients
ONE = "FEDCEF_POPULATION_ONE"  # in the environment of a measurement: what it is of
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "population.png"

Result = dict[str, Any]


def method(name: str) -> Algorithm:
    if name == "fedavg":
        return FedAvg(local_lr=0.1, local_steps=10)
    keep = TopK(ratio=0.05)
    return FedCEF(local_lr=0.1, local_steps=10, mixing=0.5, downlink="lossy", compressor=keep, down_compressor=keep)


def played(model: str, name: str, store: str, clients: int) -> Result:
    """The rounds of one run, in this process."""
    keep_freed_memory()  # as `fedcef run` does
    digits = load("digits")
    before = memory("VmRSS")
    began = time.perf_counter()
    torch.manual_seed(0)
    problem = Problem.build(
        MODELS[model]((1, 8, 8), 10),
        nn.functional.cross_entropy,
        drawn(digits.train_inputs, digits.train_targets, num_clients=clients, size=20),
        test=(digits.test_inputs, digits.test_targets),
    )
    options = {"clients_per_round": 100, "batch_size": 10, "oracle": "layered", "store": {"name": store}}
    simulation = Simulation(problem, method(name), **options)
    built = time.perf_counter() - began
    seconds, on_core = [], []
    for _ in range(WARM_UP + ROUNDS):
        clock, core = time.perf_counter(), time.process_time()
        simulation.step()
        seconds.append(time.perf_counter() - clock)
        on_core.append(time.process_time() - core)
    return {
        "parameters": problem.dim,
        "build_s": built,
        "round_s": seconds[WARM_UP:],
        "round_cpu_s": on_core[WARM_UP:],
        "resident_before_bytes": before,
        "resident_bytes": memory("VmRSS"),
        "resident_peak_bytes": memory("VmHWM"),
        "touched": len(simulation.state.clients.touched()) if name == "fedcef" else 0,
    }


def million() -> Result:
    """Bytes of a client's state by how often it took part, with a CNN of 1.6 million parameters."""
    digits = load("digits")
    images = nn.functional.interpolate(digits.train_inputs, scale_factor=4).expand(-1, 3, -1, -1).contiguous()
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12544, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    problem = Problem.build(
        network, nn.functional.cross_entropy, drawn(images, digits.train_targets, num_clients=CNN_CLIENTS, size=20)
    )
    signs = TopK(ratio=0.01, values="sign")
    fedcef = FedCEF(local_lr=0.05, local_steps=2, mixing=0.5, downlink="lossy", compressor=signs, down_compressor=signs)
    with tempfile.TemporaryDirectory() as folder:
        store = {"name": "disk", "code": "nonzeros"}
        options = {"clients_per_round": CNN_COHORT, "batch_size": 10, "oracle": "layered", "store": store}
        simulation = Simulation(problem, fedcef, folder=Path(folder), **options)
        times = torch.zeros(CNN_CLIENTS, dtype=torch.int64)
        for t in range(CNN_ROUNDS):
            times[simulation.engine.rounds.cohort(t)] += 1
            simulation.step()
        rows = simulation.state.clients.take(torch.arange(CNN_CLIENTS))
        code = ROW_CODES["nonzeros"]()
        each = [len(code.encode({name: table[i] for name, table in rows.items()})) for i in range(CNN_CLIENTS)]
        file = sum(path.stat().st_size for path in Path(folder).glob("client_states*"))
    by_times = {n: [b for b, seen in zip(each, times.tolist(), strict=True) if seen == n] for n in range(1, 6)}
    return {
        "parameters": problem.dim,
        "clients": CNN_CLIENTS,
        "vectors_per_client": len(rows),
        "dense_bytes_per_client": 4 * problem.dim * len(rows),
        "bytes_per_client_by_times": {n: statistics.fmean(found) for n, found in by_times.items() if found},
        "clients_by_times": {n: len(found) for n, found in by_times.items()},
        "file_bytes_with_outdated_rows": file,
    }


def memory(what: str) -> int:
    """Bytes that the system says this process has (VmRSS), or has had at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:"))


def in_a_process(what: Sequence[Any]) -> Result:
    environment = os.environ | {ONE: json.dumps(what), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, check=True, text=True)
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(repeats: int, sizes: Sequence[int]) -> Result:
    """All of the curves: by model and kind, what was found for each number of clients."""
    found: Result = {model: {kind: {n: [] for n in sizes} for kind in KINDS} for model in ("softmax", "mlp")}
    for _ in range(repeats):
        for model, kinds in found.items():
            for kind, by_size in kinds.items():
                for clients, results in by_size.items():
                    results.append(in_a_process(["played", model, *KINDS[kind], clients]))
    return {model: {kind: summary(by_size) for kind, by_size in kinds.items()} for model, kinds in found.items()}


def summary(by_size: Mapping[int, Sequence[Result]]) -> Result:
    """Medians over all repeats, by number of clients."""
    rows: dict[int, Result] = {}
    for clients, results in by_size.items():
        row: Result = {name: statistics.median(r[name] for r in results) for name in results[0] if "round" not in name}
        for name in ("round_s", "round_cpu_s"):
            times = [t for r in results for t in r[name]]
            row |= {name: statistics.median(times), f"{name}_range": [min(times), max(times)]}
        rows[clients] = row
    first, last = min(rows), max(rows)
    spread: Result = {
        f"{name}_largest_over_smallest": max(r[name] for r in rows.values()) / min(r[name] for r in rows.values())
        for name in ("round_s", "round_cpu_s", "resident_bytes")
    }
    if last // 10 in rows and last > first:
        more = rows[last]["resident_bytes"] - rows[last // 10]["resident_bytes"]
        spread["bytes_per_untouched_client"] = more / (last - last // 10)
    return {"clients": rows, **spread}


def show(curves: Result) -> None:
    for model, kinds in curves.items():
        for kind, found in kinds.items():
            print(f"{model}, {kind}")
            for clients, row in found["clients"].items():
                print(
                    f"  {clients:>9,} clients: built in {row['build_s']:.2f} s, {1e3 * row['round_s']:6.1f} ms a round "
                    f"({1e3 * row['round_cpu_s']:.1f} on the core), {format_bytes(row['resident_bytes'])} resident"
                )
            ratios = {name: value for name, value in found.items() if name != "clients"}
            print("  " + ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in ratios.items()))


def draw(curves: Result, path: Path) -> None:
    """Seconds a round and resident memory against the number of clients."""
    with drawing(path) as fig:
        fig.set_size_inches(7.2, 3.0)
        panels = (("round_s", 1e3, "Milliseconds a round"), ("resident_bytes", 1e-6, "Resident memory (MB)"))
        for ax, (name, scale, label) in zip(fig.subplots(1, 2), panels, strict=True):
            for dash, (model, kinds) in zip(("-", (0, (4, 2))), curves.items(), strict=True):
                for (color, _), (marker, _), (kind, found) in zip(COLORS, MARKERS, kinds.items(), strict=False):
                    values = [scale * row[name] for row in found["clients"].values()]
                    title = f"{kind}, {'MLP' if model == 'mlp' else model}"
                    style = {"color": color, "ls": dash, "marker": marker, "ms": 4, "lw": 1.4, "label": title}
                    ax.plot([int(n) for n in found["clients"]], values, **style)
            ax.set(xscale="log", xlabel="Clients", ylabel=label, ylim=(0, None))
            ax.grid(True, lw=0.4, color="#dddddd")
            ax.spines[["top", "right"]].set_visible(False)
        handles, labels = fig.axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one repeat, a thousand and a million clients")
    parser.add_argument("--write", action="store_true", help="keep benchmarks/results/population.json and the figure")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    sizes = (SIZES[0], SIZES[-1]) if arguments.quick else SIZES
    curves = measured(1 if arguments.quick else arguments.repeats, sizes)
    show(curves)
    cnn = in_a_process(["million"])
    print(f"A CNN with {cnn['parameters']:,} parameters, the signs of the largest 1%, states without their zeros:")
    for times, each in cnn["bytes_per_client_by_times"].items():
        whole = f"{format_bytes(1e6 * each)} for a million ({'within' if 1e6 * each <= BUDGET else 'beyond'} 100 GB)"
        print(f"  took part {times}x: {format_bytes(each)} a client, {whole}")
    if arguments.write:
        settings = {"warm_up_rounds": WARM_UP, "rounds": ROUNDS, "repeats": arguments.repeats, "threads": 1}
        write("population", {"machine": machine(), **settings, "curves": curves, "million_of_a_cnn": cnn})
        draw(curves, FIGURE)


if __name__ == "__main__":
    if ONE in os.environ:
        function, *rest = json.loads(os.environ[ONE])
        print(json.dumps({"played": played, "million": million}[function](*rest)))
    else:
        main()
