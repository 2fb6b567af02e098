"""What a round over Flower costs beside local computing: FedCEF by fedcef.flower, FedAvg by Flower's own strategy.

    python benchmarks/flower.py [--repeats 3] [--patience 30] [--write]

The paper's CIFAR-10 network (4.46 million parameters) on random images, 2 clients, 2 local steps of batch 16, one torch
thread each.  In a deployment of real processes on this machine (one SuperLink, two SuperNodes, no TLS), and on Flower's
simulation engine (Ray, two workers).  The contenders take turns; see flower_apps.py.

Overhead is the time of a round, from the end of the last to its own end, less the time that the slower client spent
on its local steps and on compressing what they gave.  Rounds during which other processes used the machine do not
count, and blocks without one that counts are played again, until the patience (in minutes) is used up; then all count.

Before that, what fedcef's own part of a round takes: the CPU seconds of a client and of the server in one process
without Flower, which depend less on how busy the machine is.  Needs `pip install 'flwr[simulation]'`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import flower_apps
import torch
from measure import machine, write
from peers import DISTURBED, MARK, Others

HERE = Path(__file__).parent
ROUNDS = {"deployment": 5, "simulation": 8}
WARM_UP = {"deployment": 1, "simulation": 2}  # nodes are asked who they are, and Ray starts, in the first
APP = """
[project]
name = "flower-bench"
version = "1.0.0"
license = "Apache-2.0"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.flwr.app]
publisher = "fedcef"
[tool.flwr.app.components]
serverapp = "flower_apps:server"
clientapp = "flower_apps:client"
[tool.flwr.app.config]
contender = ""
rounds = 0
set = ""
"""


def loaded(path: Path) -> ModuleType:
    """A module by its file: the tests know how to start and end a deployment."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Notes:
    """What the processes of one block write down."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "notes.jsonl"

    def prepare(self, contender: str, rounds: int) -> None:
        self.file.write_text("")
        shutil.rmtree(self.file.parent / "states", ignore_errors=True)
        if contender != "flower":
            toml = flower_apps.settings(contender, rounds).to_toml()
            (self.file.parent / "experiment.toml").write_text(toml)

    def rounds(self, others: Others, skip: int) -> list[dict[str, float]]:
        """Seconds, overhead and bytes of every round but the first ones."""
        notes = [json.loads(line) for line in self.file.read_text().splitlines()]
        ends = {note["round"]: note for note in notes if "round" in note}
        found = []
        for number in sorted(ends)[skip:]:
            before, after = ends[number - 1], ends[number]
            busy: dict[int, float] = {}
            for note in notes:
                if note.get("of") == number:
                    busy[note["client"]] = busy.get(note["client"], 0.0) + note["local_s"]
            seconds = after["time"] - before["time"]
            found.append(
                {
                    "seconds": seconds,
                    "local": max(busy.values()),
                    "overhead": seconds - max(busy.values()),
                    "up": after["up"] - before["up"],
                    "down": after["down"] - before["down"],
                    "others": others.cores(before["time"], after["time"]),
                }
            )
        return found


def wait(process: subprocess.Popen[bytes], others: Others, log: Path) -> None:
    while process.poll() is None:
        others.look(after=0.25)
    if process.returncode:
        raise RuntimeError(f"A block ended with {process.returncode}:\n{log.read_text()[-3000:]}")


def simulated(folder: Path, notes: Notes, contender: str, rounds: int) -> Others:
    environment = {
        **os.environ,
        MARK: "1",
        "FEDCEF_BENCH": str(notes.file),
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    play = f"import flower_apps; flower_apps.simulate({contender!r}, {rounds})"
    others, log = Others(), folder / "simulation.log"
    with log.open("a") as out:
        command = [sys.executable, "-c", play]
        process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=out, stderr=out)
    wait(process, others, log)
    return others


def deployed(lab: Any, contender: str, rounds: int) -> Others:
    others = Others()
    wait(lab.run(contender=contender, rounds=rounds), others, lab.logs / "run.log")
    return others


def play(mode: str, notes: Notes, block: Callable[[str, int], Others], repeats: int, deadline: float) -> dict[str, Any]:
    """All contenders in turn; returns their rounds."""
    kept: dict[str, list[dict[str, float]]] = {name: [] for name in flower_apps.CONTENDERS}
    for _ in range(repeats):
        for name in kept:
            while True:
                notes.prepare(name, ROUNDS[mode])
                others = block(name, ROUNDS[mode])
                found = notes.rounds(others, WARM_UP[mode])
                quiet = [one for one in found if one["others"] < DISTURBED]
                print(
                    f"  {mode}, {name}: {[round(one['overhead'], 2) for one in found]}, {len(quiet)} quiet", flush=True
                )
                if quiet or time.perf_counter() > deadline:
                    break
            kept[name] += quiet or found
    return kept


def core(contender: str, folder: Path, rounds: int = 6) -> tuple[dict[str, float], dict[str, int]]:
    """CPU seconds of fedcef's own part of a round, for a client beside its local steps, and for the server; and bytes
    on their disks."""
    from fedcef.deployment import ClientStore, Coordinator, Worker, without_data
    from fedcef.deployment.client_problem import problem_of_client

    os.environ["FEDCEF_BENCH"] = str(folder / "core.jsonl")
    config = flower_apps.settings(contender, rounds)
    server = Coordinator.new(config, without_data(config.build_problem(())), folder / f"{contender} run")
    clients = range(flower_apps.CLIENTS)
    stores = [ClientStore(folder / f"{contender} {i}", i) for i in clients]
    workers = [Worker(config, problem_of_client(config, i), stores[i]) for i in clients]
    spent: dict[str, list[float]] = {"client": [], "server": []}
    for _ in range(rounds):
        (folder / "core.jsonl").write_text("")
        began = time.process_time()
        orders = server.start_round(0.0)
        at_server = time.process_time() - began
        began = time.process_time()
        replies = []
        for client, order in orders.items():
            server.enroll(str(client), client)
            with flower_apps.timed_local():
                replies.append(workers[client].handle(order))
            workers[client].store.forget()
        at_clients = time.process_time() - began
        began = time.process_time()
        assert all(server.receive(str(client), reply).accepted for client, reply in enumerate(replies))
        server.close_round(1.0)
        at_server += time.process_time() - began
        local = sum(json.loads(line)["local_cpu_s"] for line in (folder / "core.jsonl").read_text().splitlines())
        spent["client"].append((at_clients - local) / flower_apps.CLIENTS)
        spent["server"].append(at_server)
    run = server.state.folder.path
    kept = {
        "client": disk(folder / f"{contender} 0"),
        "snapshot and log": sum((run / name).stat().st_size for name in ("snapshot.bin", "round_log.bin")),
        "sums, per client": disk(run / "sums") // flower_apps.CLIENTS,
    }
    return {who: statistics.median(seconds[1:]) for who, seconds in spent.items()}, kept


def disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def summary(rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians, and how the contenders compare with Flower's own."""
    result: dict[str, Any] = {}
    for name, found in rounds.items():
        result[name] = {key: statistics.median(one[key] for one in found) for key in found[0]}
        overheads = [one["overhead"] for one in found]
        result[name] |= {f"overhead_{f.__name__}": f(overheads) for f in (min, max, statistics.mean)}
    for name, one in result.items():
        bytes_, base = one["up"] + one["down"], result["flower"]
        ratio = (base["up"] + base["down"]) / bytes_
        spread = f"{one['overhead_min']:.2f}-{one['overhead_max']:.2f}"
        print(
            f"  {name:14} {one['overhead']:6.2f} s beside local computing ({spread}, mean {one['overhead_mean']:.2f}), "
            f"{one['seconds']:6.2f} s in all; "
            f"{bytes_ / 1e6:7.2f} MB a round, {ratio:.1f}x fewer"
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--patience", type=float, default=0, help="minutes to wait for a quiet machine, in all")
    parser.add_argument("--only", choices=tuple(ROUNDS), help="one of the two engines")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/flower.json")
    arguments = parser.parse_args()
    modes = [arguments.only] if arguments.only else list(ROUNDS)
    deadline = time.perf_counter() + 60 * arguments.patience
    tools = loaded(HERE.parent / "tests" / "flower" / "deployment.py")
    rounds: dict[str, Any] = {}
    alone: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        notes = Notes(folder)
        for name in flower_apps.SETTINGS:
            alone[name], kept[name] = core(name, folder)
            parts = [f"{seconds:.2f} s of CPU in a {who}" for who, seconds in alone[name].items()]
            parts += [f"{size / 1e6:.1f} MB on disk ({who})" for who, size in kept[name].items()]
            print(f"  {name:14} {', '.join(parts)}", flush=True)
        if "simulation" in modes:
            block = lambda name, count: simulated(folder, notes, name, count)  # noqa: E731
            rounds["simulation"] = play("simulation", notes, block, arguments.repeats, deadline)
        if "deployment" in modes:
            app = folder / "bench-app"
            app.mkdir()
            shutil.copy(HERE / "flower_apps.py", app)
            (app / "pyproject.toml").write_text(APP)
            with tools.Deployment(folder / "deployed", secure=False, app=app) as lab:
                lab.environment |= {MARK: "1", "FEDCEF_BENCH": str(notes.file), "CUDA_VISIBLE_DEVICES": ""}
                lab.superlink()
                for client in range(flower_apps.CLIENTS):
                    lab.supernode(client)
                lab.connected(*(f"node-{client}" for client in range(flower_apps.CLIENTS)))
                block = lambda name, count: deployed(lab, name, count)  # noqa: E731
                rounds["deployment"] = play("deployment", notes, block, arguments.repeats, deadline)
    results = {}
    for mode in modes:
        print(f"{mode}:")
        results[mode] = summary(rounds[mode])
    if arguments.write:
        settings = {key: getattr(flower_apps, key) for key in ("CLIENTS", "STEPS", "BATCH", "SETTINGS")}
        record = {
            "machine": machine() | {package: version(package) for package in ("flwr", "ray")},
            "settings": settings,
            "repeats": arguments.repeats,
            "cpu_seconds_without_flower": alone,
            "disk_bytes": kept,
            "medians": results,
            "rounds": rounds,
        }
        write("flower", record)


if __name__ == "__main__":
    main()
