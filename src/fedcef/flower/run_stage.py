"""A client's answer to a stage of secure aggregation, from its session on its disk."""

from __future__ import annotations

from fedcef.core.disk import PrivateDisk
from fedcef.flower.settings import Values, client_number, signing_files, state_folder
from fedcef.runs.lock import locked
from fedcef.secure.signing import Signing
from fedcef.secure.store import SessionStore


def handle_stage(request: bytes, run_config: Values, node_config: Values) -> bytes:
    """The reply to a request."""
    client = client_number(node_config)
    folder = state_folder(run_config, node_config, client)
    with locked(folder / "lock", wait=True, mode=PrivateDisk.dir_mode):
        return SessionStore(folder, client, signing=lambda: _signing(node_config)).handle(request)


def _signing(node_config: Values) -> Signing | None:
    files = signing_files(node_config)
    return Signing.read(*files) if files else None
