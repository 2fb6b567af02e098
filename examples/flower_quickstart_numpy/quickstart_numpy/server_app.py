"""The server: FedAvg, and the test set."""

import random

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcef.flower import Compressed
from quickstart_numpy.task import first_arrays, mnist, test

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
    return ArrayRecord(first_arrays(seed))


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """The model on the test set."""
    _, _, images, labels = mnist()
    loss, accuracy = test(arrays.to_numpy_ndarrays(), images, labels)
    return MetricRecord({"accuracy": accuracy, "loss": loss})
