"""How gradients become steps: on the clients (`local`), on the server (`server`), in one pass on a GPU (`fused`)."""

from fedcef.optimizers.adamw import AdamW
from fedcef.optimizers.adaptive import Adagrad, Adam, Yogi
from fedcef.optimizers.local import SGD, LocalUpdate
from fedcef.optimizers.local_momentum import LocalMomentum
from fedcef.optimizers.momentum import Momentum
from fedcef.optimizers.muon import Muon
from fedcef.optimizers.server import Memory, Plain, ServerUpdate

__all__ = [
    "LOCAL_UPDATES",
    "SERVER_UPDATES",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "LocalMomentum",
    "LocalUpdate",
    "Memory",
    "Momentum",
    "Muon",
    "Plain",
    "ServerUpdate",
    "Yogi",
]

LOCAL_UPDATES: dict[str, type[LocalUpdate]] = {"sgd": SGD, "momentum": LocalMomentum, "adamw": AdamW, "muon": Muon}
SERVER_UPDATES: dict[str, type[ServerUpdate]] = {
    "plain": Plain,
    "momentum": Momentum,
    "adam": Adam,
    "yogi": Yogi,
    "adagrad": Adagrad,
}
