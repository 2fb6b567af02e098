"""Clients that sign their keys over Flower's messages: the simulator's bits, and a server that lies is found out."""

from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from fedcef.core.errors import RunError
from fedcef.flower.records import bytes_of
from fedcef.secure.primitives import new_seed, public_key
from fedcef.secure.server import ServerSession
from fedcef.secure.signing import SIGNATURE
from fedcef.secure.stages import Stage, decode_stage
from secure.key_files import new_key, written

from .test_secure import compare, deployed, settings, stage_of


def signing_nodes(made, folder):
    """Give all nodes keys of their own, and everyone's public ones."""
    folder.mkdir()
    keys = written(folder, [new_key() for _ in made.grid.nodes])
    for node, (key, peers) in zip(made.grid.nodes, keys, strict=True):
        node.node_config |= {"secure-key": str(key), "secure-peers": str(peers)}


def test_with_signed_keys_it_is_the_simulators_run_too(tmp_path):
    run = settings(secure={"range": 4.0, "neighbours": 4})
    made = deployed(tmp_path, run)
    signing_nodes(made, tmp_path / "keys")
    assert compare(made.run(), run) == [dict.fromkeys(range(5), False)] * 2
    asked = decode_stage(next(bytes_of(one) for one in made.grid.nodes[0].seen if stage_of(one) == Stage.SHARES))
    assert {len(entry) for entry in asked.entries.values()} == {64 + SIGNATURE}


def test_a_server_that_hands_out_keys_of_its_own_is_found_out_by_signatures(tmp_path, monkeypatch):
    """Client 2 gets everyone's keys, and the others those of the server under client 2's number."""
    share, forged = ServerSession.share, public_key(new_seed()) + public_key(new_seed())

    def lies(self):
        requests = {client: decode_stage(data) for client, data in share(self).items()}
        for client in requests.keys() - {2}:
            entries = {**requests[client].entries, 2: forged + requests[client].entries[2][64:]}
            requests[client] = replace(requests[client], entries=entries)
        return {client: request.encode() for client, request in requests.items()}

    monkeypatch.setattr(ServerSession, "share", lies)
    made = deployed(tmp_path, settings(rounds=1))
    signing_nodes(made, tmp_path / "keys")
    with pytest.raises(RunError, match=r"client 0 says: The public keys of client 2 are signed by another key"):
        made.run()


def test_a_node_that_cannot_sign_says_why(tmp_path):
    made = deployed(tmp_path, settings(rounds=1))
    for node in made.grid.nodes:
        node.node_config["secure-key"] = "a key"
    with pytest.raises(RunError, match="client 0 says: secure-key and secure-peers belong together"):
        made.run()
