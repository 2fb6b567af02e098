"""Seconds per FedAvg round of this simulator, a plain PyTorch loop, Flower and pfl-research, in one interleaved run.

    python benchmarks/peers.py [--rounds 3] [--repeats 5] [--patience 30] [--write]

FedAvg with the paper's MNIST network, 10 clients, 10 local steps of batch 64, plain SGD, random images, on the CPU.
Every measurement is a process of its own that plays two rounds to warm up and then times each round; the contenders
take turns within each repeat.  Until the patience (in minutes) is used up, a measurement waits while other processes
use the machine, and rounds that they disturbed do not count, whatever they took; if none is left it is done again.  A
contender that is not installed is left out.  None is a dependency of the project:

    python3 -m venv /tmp/peers-venv
    /tmp/peers-venv/bin/pip install -e . 'flwr[simulation]' pfl
    /tmp/peers-venv/bin/python benchmarks/peers.py --patience 30 --write
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, table, write
from plain_loop import plain_cnn
from torch import Tensor, nn

from fedcef import FedAvg, Problem
from fedcef.core.threads import cores
from fedcef.problems.models import MnistCNN
from fedcef.simulation.simulation import Simulation

CLIENTS, STEPS, BATCH, LR = 10, 10, 64, 0.01
WARM_UP = 2  # rounds; the start of Ray falls into the first
DISTURBED = 0.1  # of a core: a round counts if other processes use less
MARK = "FEDCEF_PEERS"  # in the environment of everything that a measurement starts

Seen = Callable[[Iterable[Tensor]], None]
"""Called with the parameters before the first round and after each."""


@cache
def data(client: int) -> tuple[Tensor, Tensor]:
    """As many samples as a round takes: pfl-research ends a client's round where its data ends."""
    generator, samples = torch.Generator().manual_seed(client), STEPS * BATCH
    images = torch.randn(samples, 1, 28, 28, generator=generator)
    return images, torch.randint(0, 10, (samples,), generator=generator)


@cache
def network() -> nn.Sequential:
    """The paper's MNIST network in the usual order; it starts where MnistCNN does."""
    torch.manual_seed(0)
    return plain_cnn(1, ((32,), (64,)), 3136, 128)


def train(model: nn.Module, client: int) -> None:
    """A client's local steps as one would write them, through its data in order."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for inputs, targets in zip(*(part.split(BATCH) for part in data(client)), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def fedcef(rounds: int, seen: Seen) -> None:
    torch.manual_seed(0)
    network = MnistCNN((1, 28, 28), 10)
    task = Problem.build(network, nn.functional.cross_entropy, [data(client) for client in range(CLIENTS)])
    simulation = Simulation(task, FedAvg(local_lr=LR, local_steps=STEPS), batch_size=BATCH)
    seen([simulation.model()])
    for _ in range(rounds):
        simulation.step()
        seen([simulation.model()])


def plain(rounds: int, seen: Seen) -> None:
    model = network()
    z = [p.detach().clone() for p in model.parameters()]
    seen(z)
    for _ in range(rounds):
        total = [torch.zeros_like(part) for part in z]
        for client in range(CLIENTS):
            with torch.no_grad():
                for p, part in zip(model.parameters(), z, strict=True):
                    p.copy_(part)
            train(model, client)
            for part, p in zip(total, model.parameters(), strict=True):
                part += p.detach()
        z = [part / CLIENTS for part in total]
        seen(z)


def flower_client() -> Any:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def local_steps(message: Message, context: Context) -> Message:
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        train(model, int(context.node_config["partition-id"]))
        metrics = MetricRecord({"num-examples": STEPS * BATCH})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def flower_strategy(grid: Any, rounds: int, seen: Seen) -> None:
    """Flower's own FedAvg; its hook for an evaluation by the server is what tells the time, nothing is evaluated."""
    from flwr.app import ArrayRecord
    from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

    def look(_: int, arrays: ArrayRecord) -> None:
        seen(arrays.to_torch_state_dict().values())

    strategy = FlowerFedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=rounds, evaluate_fn=look)


def flower_on_ray(rounds: int, seen: Seen) -> None:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    app = ServerApp()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        flower_strategy(grid, rounds, seen)

    threads = int(os.environ["OMP_NUM_THREADS"])  # Ray gives an actor as many threads as cores
    resources = {"client_resources": {"num_cpus": threads, "num_gpus": 0.0}, "init_args": {"num_cpus": cores()}}
    run_simulation(server_app=app, client_app=flower_client(), num_supernodes=CLIENTS, backend_config=resources)


def flower_in_process(rounds: int, seen: Seen) -> None:
    """Flower's messages and strategy over a grid of ours that calls the clients one after the other."""
    from flwr.app import Context, Message, RecordDict
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # messages ask for the sender's
    clients = flower_client()
    contexts = {
        2 + i: Context(run_id=1, node_id=2 + i, node_config={"partition-id": i}, state=RecordDict(), run_config={})
        for i in range(CLIENTS)
    }

    class InProcess(Grid):
        def get_node_ids(self) -> list[int]:
            return list(contexts)

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            return [clients(message, contexts[message.metadata.dst_node_id]) for message in messages]

        def not_needed(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        run = property(not_needed)
        set_run = create_message = push_messages = pull_messages = not_needed

    flower_strategy(InProcess(), rounds, seen)


def pfl_research(rounds: int, seen: Seen) -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class Look(TrainingProcessCallback):
        def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
            seen(model.pytorch_model.parameters())
            return Metrics()

        def after_central_iteration(self, metrics: Metrics, model: PyTorchModel, **_: Any) -> tuple[bool, Metrics]:
            seen(model.pytorch_model.parameters())
            return False, Metrics()

    net = network()
    net.loss = lambda inputs, targets: nn.functional.cross_entropy(net(inputs), targets)
    net.metrics = lambda inputs, targets: {"samples": Weighted(len(inputs), 1)}  # asked for in the first round only
    users = {client: PyTorchTensorDataset(data(client)) for client in range(CLIENTS)}
    everyone = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, evaluation_frequency=rounds, train_cohort_size=CLIENTS, val_cohort_size=0),
        SimulatedBackend(training_data=everyone, val_data=everyone),
        PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_batch_size=BATCH, local_num_epochs=None, local_learning_rate=LR, local_num_steps=STEPS
        ),
        callbacks=[Look()],
        send_metrics_to_platform=False,
    )


@dataclass(frozen=True)
class Contender:
    play: Callable[[int, Seen], None]
    processes: int
    threads: int  # torch's, in each process
    module: str = ""  # what it needs ...
    package: str = ""  # ... and what pip calls that
    torchrun: bool = False

    def missing(self) -> str:
        """What to install, or nothing."""
        return self.package if self.module and not find_spec(self.module) else ""


def contenders() -> dict[str, Contender]:
    """Everyone with both ways to use all cores that it offers."""
    n, flower = cores(), "flwr[simulation]"
    return {
        "fedcef": Contender(fedcef, 1, n),
        "plain loop": Contender(plain, 1, n),
        f"Flower on Ray, {n} workers": Contender(flower_on_ray, n, 1, "ray", flower),
        "Flower on Ray, 1 worker": Contender(flower_on_ray, 1, n, "ray", flower),
        "Flower, in-process grid": Contender(flower_in_process, 1, n, "flwr", flower),
        f"pfl-research, {n} processes": Contender(pfl_research, n, 1, "pfl", "pfl", torchrun=True),
        "pfl-research, 1 process": Contender(pfl_research, 1, n, "pfl", "pfl"),
    }


def measured_here(name: str, rounds: int, result: Path) -> None:
    """Play in this process; keep when every round began and ended, and how far the parameters went."""
    times, points = [], []

    def seen(parameters: Iterable[Tensor]) -> None:
        times.append(time.perf_counter())
        points[1:] = [torch.cat([p.detach().reshape(-1) for p in parameters])]

    contenders()[name].play(WARM_UP + rounds, seen)
    if os.environ.get("RANK", "0") == "0":
        distance = float((points[1] - points[0]).norm())
        result.write_text(json.dumps({"times": times[WARM_UP:], "distance": distance}))


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


def undisturbed(name: str, contender: Contender, rounds: int, deadline: float) -> dict[str, Any]:
    """A measurement's rounds that had the machine to themselves, at least one; after the deadline, any."""
    while True:
        others = Others()
        while time.perf_counter() < deadline:
            others.look(after=2)
            if others.cores(*others.times[-2:]) < DISTURBED:
                break
        result = measured(name, contender, rounds)
        patient = time.perf_counter() < deadline
        result["rounds"] = [r for r in result["rounds"] if r["others"] < DISTURBED or not patient]
        if result["rounds"]:
            return result


def measured(name: str, contender: Contender, rounds: int) -> dict[str, Any]:
    """Play in a fresh process, with the threads that suit the contender and no way to call home."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        result = Path(folder) / "result.json"
        # imported, not run: Ray's workers then find the clients' data by name instead of unpacking it in every round
        play = f"import pathlib, peers; peers.measured_here({name!r}, {rounds}, pathlib.Path({str(result)!r}))"
        launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={contender.processes}", "--no-python"]
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
        if process.returncode or not result.exists():
            log.seek(0)
            error = re.search(r"^[\w.]*Error: .*", log.read(), re.MULTILINE)  # the first is the cause of the others
            raise RuntimeError(error[0] if error else f"its process ended with {process.returncode} and left no result")
        found = json.loads(result.read_text())
        played = [{"seconds": b - a, "others": others.cores(a, b)} for a, b in pairwise(found["times"])]
        return {"rounds": played, "distance": found["distance"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds in one measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=0, help="minutes to wait for a quiet machine, in all")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/peers.json")
    arguments = parser.parse_args()

    playing = contenders()
    for name, contender in tuple(playing.items()):
        if package := contender.missing():
            print(f"{name} is left out: it is not installed here (pip install '{package}').")
            del playing[name]
    about = f"FedAvg, MNIST network, {CLIENTS} clients x {STEPS} steps x batch {BATCH}"
    print(f"{about}; {machine()}", flush=True)
    kept: dict[str, list[dict[str, Any]]] = {name: [] for name in playing}
    deadline = time.perf_counter() + 60 * arguments.patience
    for _ in range(arguments.repeats):
        for name, contender in tuple(playing.items()):
            try:
                kept[name].append(undisturbed(name, contender, arguments.rounds, deadline))
            except RuntimeError as error:
                print(f"{name} is left out: {error}", flush=True)
                del playing[name], kept[name]
    seconds = {name: [r["seconds"] for result in results for r in result["rounds"]] for name, results in kept.items()}
    result = table(seconds, "plain loop")
    if arguments.write:
        settings = {name: {"processes": c.processes, "threads_each": c.threads} for name, c in playing.items()}
        packages = {package: version(package) for package in ("flwr", "ray", "pfl") if find_spec(package)}
        record = {
            "task": about,
            "machine": machine() | packages,
            "settings": settings,
            "repeats": arguments.repeats,
            "rounds_per_repeat_at_most": arguments.rounds,
            "warm_up_rounds": WARM_UP,
            "distance_from_start": {name: [result["distance"] for result in kept[name]] for name in kept},
            "cores_used_by_others": {
                name: [r["others"] for result in results for r in result["rounds"]] for name, results in kept.items()
            },
        }
        write("peers", record | result)


if __name__ == "__main__":
    main()
