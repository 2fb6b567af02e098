"""The client: train on this node's images, evaluate on some that it keeps apart."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcef.flower import compressed
from quickstart_pytorch.task import Net, partition, test, train

app = ClientApp(mods=[compressed()])  # the client's line; it was ClientApp()


def own_data(context: Context):
    """This node's training and validation images."""
    count, samples = context.run_config["num-partitions"], context.run_config["samples-per-node"]
    return partition(context.node_config["partition-id"], count, samples)


@app.train()
def train_model(msg: Message, context: Context) -> Message:
    """Train the model that came, and send it back."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    (images, labels), _ = own_data(context)
    seed = hash(
        (context.run_config["seed"], context.node_config["partition-id"], msg.content["config"]["server-round"])
    )
    loss = train(net, images, labels, context.run_config["learning-rate"], seed)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model that came."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, (images, labels) = own_data(context)
    loss, accuracy = test(net, images, labels)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
