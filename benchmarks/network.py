"""The virtual clock against a real clock: a Flower deployment over narrow links, and what the simulator says of it.

    python benchmarks/network.py [--rounds 4] [--write]

One SuperLink and three SuperNodes in processes of their own on this machine, each SuperNode behind a link of its own
(throttle.py): so many Mbit/s up and down, and a delay.  The model is an MLP on the handwritten digits, wide enough for
its bytes to take longer than anything else.

What a round costs beside its bytes is Flower's: nodes look for work every three seconds, and start a process for every
message, which imports torch.  It is measured once, as the seconds of a round over links without limits, and entered as
the clients' constant (`network.overhead_s`).  Everything else that is predicted follows from the bytes and the links.
The first round of every run is left out: there nodes are asked who they are.  Needs `pip install flwr`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from measure import machine, write
from throttle import Link

from fedcef.runs.settings import Settings
from fedcef.simulation.simulation import Simulation
from flower import loaded

HERE = Path(__file__).parent
CLIENTS, STEPS, WIDTH = 3, 2, 12_000
MODEL = f"""
from torch import nn


def wide(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, {WIDTH}), nn.ReLU(), nn.Linear({WIDTH}, num_classes))
"""
APP = """
[project]
name = "network-bench"
version = "1.0.0"
license = "Apache-2.0"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.flwr.app]
publisher = "fedcef"
[tool.flwr.app.components]
serverapp = "fedcef.flower.server_app:app"
clientapp = "fedcef.flower.client_app:app"
[tool.flwr.app.config]
experiment = "experiment.toml"
set = ""
out = ""
"""
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"algorithm": {"name": "fedavg"}, "compressor": {"name": "identity"}},
    "FedCEF, Top-1%": {"algorithm": {"name": "fedcef"}, "compressor": {"name": "topk", "ratio": 0.01}},
}


class Case(NamedTuple):
    """One method over links of these speeds."""

    method: str
    up_mbit: tuple[float, ...]
    down_mbit: float
    latency_ms: float


CASES = (
    Case("FedAvg", (1.0, 1.0, 1.0), 8.0, 20.0),
    Case("FedAvg", (4.0, 4.0, 4.0), 20.0, 20.0),
    Case("FedAvg", (1.0, 2.0, 4.0), 8.0, 100.0),
    Case("FedCEF, Top-1%", (1.0, 1.0, 1.0), 8.0, 20.0),
    Case("FedCEF, Top-1%", (0.1, 0.1, 0.1), 0.8, 20.0),
)


def settings(method: str, rounds: int, **options: Any) -> Settings:
    """Of the runs, deployed and simulated."""
    return Settings(
        rounds=rounds,
        num_clients=CLIENTS,
        local_steps=STEPS,
        batch_size=32,
        local_lr=0.05,
        oracle="loop",
        data={"name": "digits", "partition": "iid"},
        model={"name": "bench_model:wide"},
        regularizer={"name": "l1", "weight": 1e-5},
        eval={"every": rounds},
        deployment={"min_clients": CLIENTS, "deadline_s": 600.0},
        **METHODS[method],
        **options,
    )


def measured(lab: Any, links: list[Link], case: Case | None, rounds: int) -> list[float]:
    """Seconds of every round but the first, deployed; without a case over links without limits."""
    method = "FedAvg" if case is None else case.method
    for link, up in zip(links, (0.0,) * CLIENTS if case is None else case.up_mbit, strict=True):
        link.up.mbit, link.down.mbit = up, 0.0 if case is None else case.down_mbit
        link.latency_ms = 0.0 if case is None else case.latency_ms
    number = len(list(lab.folder.glob("run-*")))
    (lab.app / "experiment.toml").write_text(settings(method, rounds).to_toml())
    out = lab.folder / f"run-{number}"
    before = [(link.up.passed, link.down.passed) for link in links]
    process = lab.run(out=str(out))
    if process.wait():
        raise RuntimeError(f"A run ended with {process.returncode}:\n{lab.log('run')[-3000:]}")
    passed = [(link.up.passed - up, link.down.passed - down) for link, (up, down) in zip(links, before, strict=True)]
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    ends = [line["wall_s"] for line in lines if line["round"]]
    print(f"    bytes through the links: {passed}; by the ledger {lines[-1]['wire_up_bytes'] / CLIENTS:.0f} up, "
          f"{lines[-1]['wire_down_bytes'] / CLIENTS:.0f} down, each", flush=True)  # fmt: skip
    return [round(after - start, 3) for start, after in pairwise(ends)]


def predicted(case: Case, rounds: int, overhead_s: float, folder: Path) -> list[float]:
    """The same by the virtual clock; local steps are part of the constant."""
    trace = folder / "trace.csv"
    rows = [f"{i},{1e6 * up},{1e6 * case.down_mbit},{case.latency_ms / 1e3},0" for i, up in enumerate(case.up_mbit)]
    trace.write_text("\n".join(["client,up,down,latency,speed", *rows]) + "\n")
    config = settings(case.method, rounds, network={"trace": str(trace), "overhead_s": overhead_s})
    problem = config.build_problem()
    simulation = Simulation(problem, config.build_algorithm(problem), config)
    ends = []
    for _ in range(rounds):
        simulation.step()
        ends.append(simulation.clock()["sim_s"])
    return [round(after - start, 3) for start, after in pairwise(ends)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="of each run; the first does not count")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/network.json")
    arguments = parser.parse_args()
    tools = loaded(HERE.parent / "tests" / "flower" / "deployment.py")
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        app = folder / "bench-app"
        app.mkdir()
        (app / "pyproject.toml").write_text(APP)
        for place in (app, folder):
            (place / "bench_model.py").write_text(MODEL)
        (app / "experiment.toml").write_text(settings("FedAvg", 1).to_toml())
        sys.path.insert(0, str(folder))  # for the model
        lab = tools.Deployment(folder / "deployed", secure=False, app=app)
        links = [stack.enter_context(Link(lab.address)) for _ in range(CLIENTS)]
        stack.enter_context(lab)  # ends before its links
        lab.environment["CUDA_VISIBLE_DEVICES"] = ""
        lab.superlink()
        for client, link in enumerate(links):
            lab.supernode(client, address=link.address)
        lab.connected(*(f"node-{client}" for client in range(CLIENTS)))
        constants = measured(lab, links, None, arguments.rounds)
        overhead = statistics.median(constants)
        print(f"  without limits: {constants}: a constant of {overhead:.2f} s", flush=True)
        for case in CASES:
            real = measured(lab, links, case, arguments.rounds)
            virtual = predicted(case, arguments.rounds, overhead, folder)
            off = statistics.median(virtual) / statistics.median(real) - 1
            print(f"  {case}: measured {real}, predicted {virtual}, {100 * off:+.1f}%", flush=True)
            results.append({**case._asdict(), "measured_s": real, "predicted_s": virtual, "off": off})
        again = measured(lab, links, None, arguments.rounds)
        print(f"  without limits once more: {again}", flush=True)
    if arguments.write:
        record = {
            "machine": machine() | {"flwr": version("flwr")},
            "clients": CLIENTS,
            "overhead_s": overhead,
            "without_limits_s": constants,
            "without_limits_afterwards_s": again,
            "cases": results,
        }
        write("network", record)


if __name__ == "__main__":
    main()
