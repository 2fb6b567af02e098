"""A Flower app that is not ours, in one process: least squares in NumPy, and a grid on which things go wrong."""

from copy import copy

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

from .in_process import InProcessGrid

NODES = 4


class Grid(InProcessGrid):
    """What a strategy uses of Flower's grid; replies can be lost, doubled or spoilt on the way."""

    def __init__(self, client_app, *, state, clients=NODES, run_config=None):
        super().__init__(client_app, run_config or {}, state=state, clients=clients)
        self.lose = lambda message, reply: False
        self.spoil = lambda message, reply: None
        self.double = False
        self.passed = []

    def get_node_ids(self):
        return [node.node_id for node in self.nodes if node.online]

    def pull_messages(self, message_ids):
        replies = sorted(super().pull_messages(message_ids), key=lambda reply: self._place(reply))
        return [reply for reply in replies for _ in range(2 if self.double else 1)]

    def _place(self, reply):
        """Replies come in the order of the clients, so that sums have one order."""
        return next(n.client for n in self.nodes if n.node_id == reply.metadata.src_node_id)

    def _answer(self, node, message):
        reply = super()._answer(node, copy(message))  # as over a network: what a mod does to it is not seen here
        self.spoil(message, reply)
        self.passed.append((node, message, None if reply.has_error() else RecordDict(dict(reply.content.items()))))
        return reply

    def _push(self, message):
        identifier = super()._push(message)
        due = self._due.get(identifier)
        if due is not None and self.lose(message, due[1]):
            del self._due[identifier]
        return identifier

    def set_run(self, run):
        raise NotImplementedError

    run = property(lambda self: None)


def start_model(dim=300, dtype="float32"):
    rng = np.random.default_rng(0)
    return ArrayRecord(
        {
            "weight": Array(rng.normal(size=(dim // 10, 10)).astype(dtype)),
            "bias": Array(np.zeros(10, dtype)),
            "steps": Array(np.array(0, np.int64)),
        }
    )


def targets(client, shape):
    return np.random.default_rng(client + 1).normal(size=shape)


def app(mods=(), steps=3, lr=0.2, fails=()):
    """Each client pulls the weights towards its own target; what it computes depends on nothing else."""
    client_app = ClientApp(mods=list(mods))

    @client_app.train()
    def train(message, context: Context):
        record = message.content["arrays"]
        arrays = {name: array.numpy().copy() for name, array in record.items()}
        number = context.node_config["partition-id"]
        for _ in range(steps):
            arrays["weight"] -= (lr * (arrays["weight"] - targets(number, arrays["weight"].shape))).astype(
                arrays["weight"].dtype
            )
            arrays["bias"] += arrays["bias"].dtype.type(0.1 * (number + 1))
        arrays["steps"] = arrays["steps"] + steps
        metrics = MetricRecord({"num-examples": number + 1, "loss": float(np.square(arrays["weight"]).mean())})
        content = RecordDict(
            {"arrays": ArrayRecord({k: Array(np.asarray(v)) for k, v in arrays.items()}), "metrics": metrics}
        )
        return FlowerMessage(content, reply_to=message)

    @client_app.evaluate()
    def evaluate(message, context: Context):
        weight = message.content["arrays"]["weight"].numpy()
        metrics = MetricRecord({"num-examples": 1, "norm": float(np.linalg.norm(weight))})
        return FlowerMessage(RecordDict({"metrics": metrics}), reply_to=message)

    return client_app


def same(one, other):
    """Whether two records hold the same bits."""
    return list(one) == list(other) and all(
        one[k].dtype == other[k].dtype and one[k].data == other[k].data for k in one
    )
