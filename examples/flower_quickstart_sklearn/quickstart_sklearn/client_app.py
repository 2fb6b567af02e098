"""The client: train on this node's images, evaluate on some that it keeps apart."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcef.flower import compressed
from quickstart_sklearn.task import model_from, partition, test, train

app = ClientApp(mods=[compressed()])  # the client's line; it was ClientApp()


def own_data(context: Context):
    """This node's training and validation images."""
    config = context.run_config
    number = context.node_config["partition-id"]
    return partition(number, config["num-partitions"], config["samples-per-node"], config["seed"])


@app.train()
def train_model(msg: Message, context: Context) -> Message:
    """Train the model that came, and send it back."""
    model = model_from(msg.content["arrays"].to_numpy_ndarrays(), context.run_config["local-iterations"])
    (images, labels), _ = own_data(context)
    loss = train(model, images, labels)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    arrays = ArrayRecord([model.coef_, model.intercept_])
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model that came."""
    model = model_from(msg.content["arrays"].to_numpy_ndarrays())
    _, (images, labels) = own_data(context)
    loss, accuracy = test(model, images, labels)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
