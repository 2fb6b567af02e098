"""What benchmarks/flower.py measures: one network, the same data and steps, over Flower in three ways.

    fedcef           FedCEF through fedcef.flower: Top-1% up, the sparse mean increment down
    fedcef dense     FedAvg through fedcef.flower: the same bytes as Flower's own
    flower           FedAvg through Flower's own strategy, as one would write it

Every process notes when rounds end and how long clients computed in the file that FEDCEF_BENCH names; times are of a
clock that all processes of a machine share.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn

CLIENTS, STEPS, BATCH, LR = 2, 2, 16, 0.01
CONTENDERS = ("flower", "fedcef", "fedcef dense")
SETTINGS: dict[str, dict[str, Any]] = {
    "fedcef": {"algorithm": {"name": "fedcef"}, "compressor": {"name": "topk", "ratio": 0.01}},
    "fedcef dense": {"algorithm": {"name": "fedavg"}, "compressor": {"name": "identity"}},
}

server = ServerApp()
client = ClientApp()


def note(**what: Any) -> None:
    with open(os.environ["FEDCEF_BENCH"], "a") as file:
        file.write(json.dumps({"time": time.perf_counter(), **what}) + "\n")


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def note_local(round_: int, number: int, began: tuple[float, float]) -> None:
    wall, cpu = (now - before for now, before in zip(clocks(), began, strict=True))
    note(of=round_, client=number, local_s=wall, local_cpu_s=cpu)


def data(number: int) -> tuple[Tensor, Tensor]:
    generator, samples = torch.Generator().manual_seed(number), STEPS * BATCH
    images = torch.randn(samples, 3, 32, 32, generator=generator)
    return images, torch.randint(0, 10, (samples,), generator=generator)


def network() -> nn.Module:
    """The paper's CIFAR-10 network, 4.46 million parameters."""
    from fedcef.problems.models import Cifar10CNN

    torch.manual_seed(0)
    return Cifar10CNN((3, 32, 32), 10)


def problem(num_clients: int, seed: int, clients: tuple[int, ...] | None) -> Any:
    from fedcef import Problem

    wanted = range(num_clients) if clients is None else clients
    return Problem.build(network(), nn.functional.cross_entropy, [data(i) for i in wanted], test=data(0))


# through fedcef


def settings(contender: str, rounds: int) -> Any:
    """The clients read them from experiment.toml, beside the notes."""
    from fedcef.runs.settings import Settings

    return Settings(
        rounds=rounds,
        num_clients=CLIENTS,
        local_steps=STEPS,
        batch_size=BATCH,
        local_lr=LR,
        oracle="loop",
        data={"name": f"{__name__}:problem"},
        **SETTINGS[contender],
    )


def serve_fedcef(grid: Grid, contender: str, rounds: int, folder: Path) -> None:
    from fedcef.deployment import Coordinator, without_data
    from fedcef.flower.round_loop import RoundLoop

    config = settings(contender, rounds)
    coordinator = Coordinator.new(config, without_data(config.build_problem(())), folder / "run")

    def watch(record: dict[str, Any]) -> None:
        note(round=record["round"], up=record["transport_up_bytes"], down=record["transport_down_bytes"])

    RoundLoop(grid, coordinator, watch=watch).run()


@contextmanager
def timed_local() -> Iterator[None]:
    """Notes how long the method's part takes in a worker: its steps, and what it compresses."""
    from fedcef.deployment.private_noise import PrivateNoise

    plain = PrivateNoise.protect

    def protect(self: Any, algorithm: Any, order: Any, base: Any) -> Any:
        algorithm = copy.copy(plain(self, algorithm, order, base))
        local = algorithm.local

        def timed(*arguments: Any) -> Any:
            began = clocks()
            result = local(*arguments)
            note_local(order.round + 1, order.client, began)
            return result

        object.__setattr__(algorithm, "local", timed)
        return algorithm

    PrivateNoise.protect = protect
    try:
        yield
    finally:
        PrivateNoise.protect = plain


def train_fedcef(message: Message, context: Context) -> Message:
    from fedcef.flower.records import bytes_of, with_bytes
    from fedcef.flower.run_client import handle

    folder = Path(os.environ["FEDCEF_BENCH"]).parent
    config = {"experiment": str(folder / "experiment.toml"), "state-dir": str(folder / "states")}
    with timed_local():
        return Message(with_bytes(handle(bytes_of(message), config, context.node_config)), reply_to=message)


# through Flower's own strategy


class Counted(FedAvg):
    """Flower's FedAvg, and the bytes of its arrays."""

    up = down = 0

    def configure_train(self, *arguments: Any, **options: Any) -> Iterable[Message]:
        messages = list(super().configure_train(*arguments, **options))
        self.down += sum(map(array_bytes, messages))
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies = list(replies)
        self.up += sum(map(array_bytes, replies))
        return super().aggregate_train(server_round, replies)


def array_bytes(message: Message) -> int:
    return sum(len(array.data) for record in message.content.array_records.values() for array in record.values())


def serve_flower(grid: Grid, rounds: int) -> None:
    strategy = Counted(fraction_evaluate=0.0, min_available_nodes=CLIENTS, min_train_nodes=CLIENTS)

    def after(round_: int, arrays: ArrayRecord) -> None:
        if round_:
            note(round=round_, up=strategy.up, down=strategy.down)

    strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=rounds, evaluate_fn=after)


def train_flower(message: Message, context: Context) -> Message:
    number, round_ = int(context.node_config["partition-id"]), int(message.content["config"]["server-round"])
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    began = clocks()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for inputs, targets in zip(*(part.split(BATCH) for part in data(number)), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    note_local(round_, number, began)
    metrics = MetricRecord({"num-examples": STEPS * BATCH})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


# either


def serve(grid: Grid, contender: str, rounds: int) -> None:
    if contender == "flower":
        return serve_flower(grid, rounds)
    with tempfile.TemporaryDirectory() as folder:
        return serve_fedcef(grid, contender, rounds, Path(folder))


def train(message: Message, context: Context, contender: str) -> Message:
    return train_flower(message, context) if contender == "flower" else train_fedcef(message, context)


@server.main()
def server_main(grid: Grid, context: Context) -> None:
    serve(grid, str(context.run_config["contender"]), int(context.run_config["rounds"]))


@client.query()
def who(message: Message, context: Context) -> Message:
    from fedcef.flower.client_app import who

    return who(message, context)


@client.train()
def client_train(message: Message, context: Context) -> Message:
    return train(message, context, str(context.run_config["contender"]))


def simulate(contender: str, rounds: int) -> None:
    """On Flower's simulation engine, which takes no run config."""
    from flwr.simulation import run_simulation

    simulated_server, simulated_client = ServerApp(), ClientApp()

    @simulated_server.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid, contender, rounds)

    simulated_client.query()(who)

    @simulated_client.train()
    def local(message: Message, context: Context) -> Message:
        return train(message, context, contender)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": CLIENTS}}
    run_simulation(simulated_server, simulated_client, num_supernodes=CLIENTS, backend_config=resources)
