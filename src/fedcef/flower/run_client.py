"""A client's worker, kept between messages.

In a deployment each message has a process of its own.  In Flower's simulation a process serves many clients, and a
client is served by many processes; so its state is read from the disk every time, and one process at a time may work
for it.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

from fedcef.core.disk import PrivateDisk
from fedcef.core.parts import is_path
from fedcef.deployment import ClientStore, Worker
from fedcef.deployment.client_problem import one_client, problem_of_client
from fedcef.deployment.secure_sums import Masks
from fedcef.flower.settings import Values, client_number, experiment, state_folder
from fedcef.problems.problem import Problem
from fedcef.runs.lock import locked
from fedcef.runs.settings import Settings
from fedcef.secure.store import SessionStore


def handle(order: bytes, run_config: Values, node_config: Values, secure: bytes = b"") -> bytes:
    """The reply to an order; in a secure run what the masks are made of came with it."""
    settings, client = experiment(run_config, node_config), client_number(node_config)
    folder = state_folder(run_config, node_config, client)
    worker = _worker(settings.model_dump_json(by_alias=True), client, folder)
    with locked(folder / "lock", wait=True, mode=PrivateDisk.dir_mode):
        try:
            return worker.handle(order, _masks(settings, folder, client, secure))
        finally:
            worker.store.forget()  # another process may do the next round, and states are large


def _masks(settings: Settings, folder: Path, client: int, secure: bytes) -> Masks | None:
    if settings.secure is None or not secure:
        return None
    store, share = SessionStore(folder, client), settings.secure.threshold
    return lambda run, round_: store.masking(secure, run, round_, share)


@lru_cache(maxsize=256)
def _worker(settings_json: str, client: int, folder: Path) -> Worker:
    settings = Settings.model_validate_json(settings_json)
    own = is_path(settings.data["name"])
    problem = problem_of_client(settings, client) if own else one_client(_whole(settings_json), client)

    def tell(sentence: str) -> None:
        print(f"client {client}: {sentence}", file=sys.stderr, flush=True)

    return Worker(settings, problem, ClientStore(folder, client), tell=tell)


@lru_cache(maxsize=1)
def _whole(settings_json: str) -> Problem:
    """A shipped problem with all clients, built once for those that share a process."""
    return Settings.model_validate_json(settings_json).build_problem()
