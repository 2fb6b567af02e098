"""How gradients become steps: on the clients (`local`), on the server (`server`), in one pass on a GPU (`fused`)."""

from fedcef.optimizers.adaptive import Adagrad, Adam, Yogi
from fedcef.optimizers.local import SGD, LocalUpdate
from fedcef.optimizers.momentum import Momentum
from fedcef.optimizers.server import Memory, Plain, ServerUpdate

__all__ = [
    "LOCAL_UPDATES",
    "SERVER_UPDATES",
    "SGD",
    "Adagrad",
    "Adam",
    "LocalUpdate",
    "Memory",
    "Momentum",
    "Plain",
    "ServerUpdate",
    "Yogi",
]

LOCAL_UPDATES: dict[str, type[LocalUpdate]] = {"sgd": SGD}
SERVER_UPDATES: dict[str, type[ServerUpdate]] = {
    "plain": Plain,
    "momentum": Momentum,
    "adam": Adam,
    "yogi": Yogi,
    "adagrad": Adagrad,
}
