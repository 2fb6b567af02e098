"""FedAvg as five simulators play it, on the same tasks: what `peers.py` measures, each in a process of its own.

A contender plays rounds and calls `seen` with the parameters before the first round and after each.  All go through
the same clients' samples with the same steps; who takes part, and in which order a client takes its samples, each
draws for itself.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from plain_loop import plain_cnn
from torch import Tensor, nn

from fedcef import FedAvg, Problem
from fedcef.core.memory import keep_freed_memory
from fedcef.core.threads import cores
from fedcef.problems.clients.drawn import drawn
from fedcef.problems.data.datasets import load
from fedcef.problems.models import MLP, MnistCNN, SoftmaxRegression
from fedcef.simulation.simulation import Simulation

Seen = Callable[[Iterable[Tensor]], None]
"""Called with the parameters before the first round and after each."""

Samples = tuple[Tensor, Tensor]

WARM_UP = 2  # rounds; the start of Ray falls into the first


@dataclass(frozen=True)
class Task:
    """What is played.  A client has as many samples as a round takes: pfl-research ends its round where they end."""

    about: str
    clients: int
    cohort: int
    steps: int
    batch: int
    lr: float
    rounds: int  # in one measurement
    data: Callable[[int], list[Samples]]  # of so many clients
    network: Callable[[], nn.Module]  # in the usual order of layers
    ours: Callable[[], nn.Module]  # the same function in fedcef's
    test: Callable[[], Samples] | None = None
    threads: int = 0  # with which one process is quickest; 0 = as many as cores
    chunk: int = 0  # how many clients a process of fedcef goes through at a time; 0 = all


def digits_clients(count: int) -> list[Samples]:
    """Clients with 100 of scikit-learn's digits each, classes by Dir(0.5)."""
    digits = load("digits")
    tables = drawn(digits.train_inputs, digits.train_targets, count, size=100).tables(torch.arange(count))
    return list(zip(tables.inputs, tables.targets, strict=True))


def digits_test() -> Samples:
    digits = load("digits")
    return digits.test_inputs, digits.test_targets


def noise_clients(count: int) -> list[Samples]:
    """Clients with 640 images of noise each."""
    generators = [torch.Generator().manual_seed(client) for client in range(count)]
    return [(torch.randn(640, 1, 28, 28, generator=g), torch.randint(0, 10, (640,), generator=g)) for g in generators]


def on_digits(about: str, model: Callable[[tuple[int, ...], int], nn.Module], lr: float) -> Task:
    def build() -> nn.Module:
        return model((1, 8, 8), 10)

    return Task(about, 1000, 100, 10, 10, lr, 8, digits_clients, build, build, digits_test, threads=1)


TASKS = {
    "softmax": on_digits("softmax regression on digits (p = 650)", SoftmaxRegression, 0.1),
    "mlp": on_digits("MLP with two hidden layers on digits (p = 8,970)", MLP, 0.1),
    "mnist_cnn": Task(
        "the paper's MNIST network on noise (p = 421,642)",
        clients=10,
        cohort=10,
        steps=10,
        batch=64,
        lr=0.01,
        rounds=3,
        data=noise_clients,
        network=lambda: plain_cnn(1, ((32,), (64,)), 3136, 128),
        ours=lambda: MnistCNN((1, 28, 28), 10),
        chunk=1,
    ),
}


@cache
def clients(task: str) -> list[Samples]:
    """All clients' samples, made once in every process that needs them: in the rounds to warm up."""
    return TASKS[task].data(TASKS[task].clients)


@cache
def network(task: str) -> nn.Module:
    """One for each process, and for each worker of Ray."""
    torch.manual_seed(0)
    return TASKS[task].network()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, samples: Samples, batch: int) -> None:
    """A client's local steps as one would write them, through its samples in order."""
    for inputs, targets in zip(*(part.split(batch) for part in samples), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def fedcef(name: str, rounds: int, seen: Seen, oracle: str, chunk: int = 0) -> None:
    task = TASKS[name]
    keep_freed_memory()  # as `fedcef run` does
    torch.manual_seed(0)
    problem = Problem.build(task.ours(), nn.functional.cross_entropy, clients(name))
    method = FedAvg(local_lr=task.lr, local_steps=task.steps)
    options = {"clients_per_round": task.cohort, "batch_size": task.batch, "oracle": oracle, "cohort_chunk": chunk}
    simulation = Simulation(problem, method, **options)
    seen([simulation.model()])
    for _ in range(rounds):
        simulation.step()
        seen([simulation.model()])


def plain(name: str, rounds: int, seen: Seen) -> None:
    task, model, data = TASKS[name], network(name), clients(name)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=task.lr)
    z = [p.detach().clone() for p in parameters]
    seen(z)
    for _ in range(rounds):
        total = [torch.zeros_like(part) for part in z]
        for client in torch.randperm(task.clients)[: task.cohort].tolist():
            with torch.no_grad():
                for p, part in zip(parameters, z, strict=True):
                    p.copy_(part)
            train(model, optimizer, data[client], task.batch)
            with torch.no_grad():
                for part, p in zip(total, parameters, strict=True):
                    part += p
        z = [part / task.cohort for part in total]
        seen(z)


def flower_client(name: str) -> Any:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app, task = ClientApp(), TASKS[name]

    @app.train()
    def local_steps(message: Message, context: Context) -> Message:
        model = network(name)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=task.lr)
        samples = clients(name)[int(context.node_config["partition-id"])]
        train(model, optimizer, samples, task.batch)
        metrics = MetricRecord({"num-examples": len(samples[0])})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def flower_strategy(name: str, grid: Any, rounds: int, seen: Seen) -> None:
    """Flower's own FedAvg; its hook for an evaluation by the server is what tells the time, nothing is evaluated."""
    from flwr.app import ArrayRecord
    from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

    def look(_: int, arrays: ArrayRecord) -> None:
        seen(arrays.to_torch_state_dict().values())

    task = TASKS[name]
    some = {"fraction_train": task.cohort / task.clients, "fraction_evaluate": 0.0}
    strategy = FlowerFedAvg(**some, min_train_nodes=task.cohort, min_available_nodes=task.clients)
    strategy.start(grid, ArrayRecord(network(name).state_dict()), num_rounds=rounds, evaluate_fn=look)


def flower_on_ray(name: str, rounds: int, seen: Seen) -> None:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    app = ServerApp()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        flower_strategy(name, grid, rounds, seen)

    threads = int(os.environ["OMP_NUM_THREADS"])  # Ray gives an actor as many threads as cores
    resources = {"client_resources": {"num_cpus": threads, "num_gpus": 0.0}, "init_args": {"num_cpus": cores()}}
    run_simulation(
        server_app=app,
        client_app=flower_client(name),
        num_supernodes=TASKS[name].clients,
        backend_config=resources,
    )


def flower_in_process(name: str, rounds: int, seen: Seen) -> None:
    """Flower's messages and strategy over a grid of ours that calls the clients one after the other."""
    from flwr.app import Context, Message, RecordDict
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # messages ask for the sender's
    app = flower_client(name)
    contexts = {
        2 + i: Context(run_id=1, node_id=2 + i, node_config={"partition-id": i}, state=RecordDict(), run_config={})
        for i in range(TASKS[name].clients)
    }

    class InProcess(Grid):
        def get_node_ids(self) -> list[int]:
            return list(contexts)

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            return [app(message, contexts[message.metadata.dst_node_id]) for message in messages]

        def not_needed(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        run = property(not_needed)
        set_run = create_message = push_messages = pull_messages = not_needed

    flower_strategy(name, InProcess(), rounds, seen)


def pfl_research(name: str, rounds: int, seen: Seen) -> None:
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

    task, net = TASKS[name], network(name)
    net.loss = lambda inputs, targets: nn.functional.cross_entropy(net(inputs), targets)
    net.metrics = lambda inputs, targets: {"samples": Weighted(len(inputs), 1)}  # asked for in the first round only
    users = {client: PyTorchTensorDataset(samples) for client, samples in enumerate(clients(name))}
    everyone = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, evaluation_frequency=rounds, train_cohort_size=task.cohort, val_cohort_size=0),
        SimulatedBackend(training_data=everyone, val_data=everyone),
        PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_batch_size=task.batch,
            local_num_epochs=None,
            local_learning_rate=task.lr,
            local_num_steps=task.steps,
        ),
        callbacks=[Look()],
        send_metrics_to_platform=False,
    )


@dataclass(frozen=True)
class Contender:
    play: Callable[[str, int, Seen], None]
    processes: int
    threads: int  # torch's, in each process
    module: str = ""  # what it needs ...
    package: str = ""  # ... and what pip calls that
    torchrun: bool = False
    is_slower: bool = False  # than another way of the same simulator, wherever it was measured

    def missing(self) -> str:
        """What to install, or nothing."""
        return self.package if self.module and not find_spec(self.module) else ""


def contenders(name: str) -> dict[str, Contender]:
    """Everyone with the ways to use all cores that it offers."""
    n, flower = cores(), "flwr[simulation]"
    alone, chunk = TASKS[name].threads or n, TASKS[name].chunk
    return {
        "fedcef, 1 process": Contender(lambda *a: fedcef(*a, oracle="layered"), 1, alone),
        f"fedcef, {n} processes": Contender(lambda *a: fedcef(*a, oracle="layered", chunk=chunk), n, 1, torchrun=True),
        "fedcef, 1 process, oracle = auto": Contender(lambda *a: fedcef(*a, oracle="auto"), 1, alone),
        "plain loop": Contender(plain, 1, alone),
        f"Flower on Ray, {n} workers": Contender(flower_on_ray, n, 1, "ray", flower),
        "Flower, in-process grid": Contender(flower_in_process, 1, alone, "flwr", flower, is_slower=True),
        f"pfl-research, {n} processes": Contender(pfl_research, n, 1, "pfl", "pfl", torchrun=True),
        "pfl-research, 1 process": Contender(pfl_research, 1, alone, "pfl", "pfl", is_slower=True),
    }


def measured_here(name: str, contender: str, result: Path) -> None:
    """Play in this process; keep when each round began and ended, how far the parameters went, how good they are."""
    times, points, task = [], [], TASKS[name]

    def seen(parameters: Iterable[Tensor]) -> None:
        times.append(time.perf_counter())
        points[1:] = [torch.cat([p.detach().reshape(-1) for p in parameters])]

    contenders(name)[contender].play(name, WARM_UP + task.rounds, seen)
    if os.environ.get("RANK", "0") == "0":
        found = {"times": times[WARM_UP:], "distance": float((points[1] - points[0]).norm())}
        if not found["distance"]:
            raise RuntimeError("the parameters have not moved")
        if task.test:
            inputs, targets = task.test()
            model = deepcopy(network(name))
            nn.utils.vector_to_parameters(points[1], model.parameters())
            found["accuracy"] = float((model(inputs).argmax(1) == targets).float().mean())
        result.write_text(json.dumps(found))
