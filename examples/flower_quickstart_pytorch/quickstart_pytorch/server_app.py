"""The server: FedAvg, and the test set."""

import random

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcef.flower import Compressed
from quickstart_pytorch.task import Net, mnist, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    config = context.run_config
    random.seed(config["seed"])
    strategy = FedAvg(fraction_evaluate=config["fraction-evaluate"])
    compressors = {key: config[key] for key in ("up", "down", "first")}
    strategy = Compressed(strategy, **compressors, folder=config["folder"] or None)  # our line
    result = strategy.start(
        grid=grid,
        initial_arrays=first_model(config["seed"]),
        num_rounds=config["num-server-rounds"],
        timeout=config["timeout"],
        evaluate_fn=evaluate,
    )
    last = result.evaluate_metrics_serverapp[config["num-server-rounds"]]
    print(f"Test accuracy {100 * last['accuracy']:.2f}% after {config['num-server-rounds']} rounds")


def first_model(seed: int) -> ArrayRecord:
    """The model before the first round."""
    torch.manual_seed(seed)
    return ArrayRecord(Net().state_dict())


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """The model on the test set."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    _, _, images, labels = mnist()
    loss, accuracy = test(net, images, labels)
    return MetricRecord({"accuracy": accuracy, "loss": loss})
