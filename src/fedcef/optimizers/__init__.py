"""How gradients become steps: on the clients (`local`), on the server (`server`), in one pass on a GPU (`fused`)."""

from fedcef.optimizers.local import SGD, LocalUpdate
from fedcef.optimizers.server import Plain, ServerUpdate

__all__ = ["LOCAL_UPDATES", "SERVER_UPDATES", "SGD", "LocalUpdate", "Plain", "ServerUpdate"]

LOCAL_UPDATES: dict[str, type[LocalUpdate]] = {"sgd": SGD}
SERVER_UPDATES: dict[str, type[ServerUpdate]] = {"plain": Plain}
