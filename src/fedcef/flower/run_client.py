"""A client's worker, kept between messages.

In a deployment each message has a process of its own.  In Flower's simulation a process serves many clients, and a
client is served by many processes; so its state is read from the disk every time, and one process at a time may work
for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from fedcef.cli.terminal import say
from fedcef.deployment import Store, Worker
from fedcef.deployment.client_problem import one_client, shard_of
from fedcef.flower.settings import Values, client_number, experiment, state_folder
from fedcef.problems.own import is_own
from fedcef.problems.problem import Problem
from fedcef.runs.settings import Settings

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


def handle(order: bytes, run_config: Values, node_config: Values) -> bytes:
    """The reply to an order."""
    config, client = experiment(run_config, node_config), client_number(node_config)
    folder = state_folder(run_config, node_config, client)
    worker = _worker(config.model_dump_json(by_alias=True), client, folder)
    with _alone(folder):
        try:
            return worker.handle(order)
        finally:
            worker.store.forget()  # another process may do the next round, and states are large


@lru_cache(maxsize=256)
def _worker(settings: str, client: int, folder: Path) -> Worker:
    config = Settings.model_validate_json(settings)
    own = is_own(config.data["name"])
    shard = shard_of(config, client) if own else one_client(_whole(settings), client)
    return Worker(config, shard, Store(folder, client), watch=lambda sentence: say(f"client {client}: {sentence}"))


@lru_cache(maxsize=1)
def _whole(settings: str) -> Problem:
    """A shipped problem with all clients, built once for those that share a process."""
    return Settings.model_validate_json(settings).build_problem()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process works for this client meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
