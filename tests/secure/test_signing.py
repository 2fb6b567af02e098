"""Clients that sign their keys notice a server that puts others in their place; without, bytes are as before."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="Flower is not installed: pip install 'fedcef[flower]'")

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedcef.core.errors import ConfigError
from fedcef.secure.client import ClientSession
from fedcef.secure.primitives import SecureError, new_seed, public_key
from fedcef.secure.server import ServerSession
from fedcef.secure.signing import SIGNATURE, Signing
from fedcef.secure.stages import decode_stage

from .key_files import new_key, written
from .session import RUN, numbers_of, plain_sum, play

CLIENTS = 4


@pytest.fixture(scope="module")
def signing(tmp_path_factory):
    files = written(tmp_path_factory.mktemp("keys"), [new_key() for _ in range(CLIENTS)])
    return dict(enumerate(Signing.read(*pair) for pair in files))


def asked_for_shares(signing, server=None):
    """The sessions of all clients, and the requests for shares, each with everyone's keys."""
    server = server or ServerSession(RUN, 3, range(CLIENTS))
    sessions = {}
    for client, data in server.begin().items():
        request = decode_stage(data)
        sessions[client], reply = ClientSession.begun(request).answer(request, signing.get(client))
        server.take(client, decode_stage(reply.encode()))
    return sessions, {client: decode_stage(data) for client, data in server.share().items()}


def with_keys(request, client, entry):
    return replace(request, entries={**request.entries, client: entry})


def test_the_sum_is_the_same(signing):
    numbers = numbers_of(range(CLIENTS), 9, 12)
    signed, unsigned = play(numbers, 12, signing=signing), play(numbers, 12)
    assert np.array_equal(signed.server.total(), plain_sum(numbers, numbers, 12))
    assert signed.up - unsigned.up == CLIENTS * SIGNATURE
    assert signed.down - unsigned.down == CLIENTS * CLIENTS * SIGNATURE


def test_keys_that_were_swapped_are_refused(signing):
    """The server's own in place of client 2's, with the signature of client 2, of another attempt, and with none."""
    forged = public_key(new_seed()) + public_key(new_seed())
    sessions, requests = asked_for_shares(signing)
    theirs = requests[0].entries[2]
    _, later = asked_for_shares(signing)
    for entry in (
        forged + theirs[64:],  # signed, for other keys
        theirs[:64] + requests[0].entries[1][64:],  # by another client
        later[0].entries[2],  # in another attempt
        forged + bytes(SIGNATURE),
        theirs[:-1] + bytes([theirs[-1] ^ 1]),
    ):
        with pytest.raises(
            SecureError, match=r"public keys of client 2 are signed by another key than that in this .*\.$"
        ):
            sessions[0].answer(with_keys(requests[0], 2, entry), signing[0])
    bare = {who: entry[:64] for who, entry in requests[0].entries.items()}
    with pytest.raises(SecureError, match="public keys of client 1 are signed by no key; the server, or somebody"):
        sessions[0].answer(replace(requests[0], entries=bare), signing[0])
    sessions[0].answer(requests[0], signing[0])
    sessions[0].answer(with_keys(requests[0], 2, forged + theirs[64:]))  # who does not look sees nothing


def test_one_who_does_not_sign_is_refused_by_those_who_do(signing):
    sessions, requests = asked_for_shares({client: signing[client] for client in (0, 1, 3)})
    assert {len(entry) for request in requests.values() for entry in request.entries.values()} == {64}
    with pytest.raises(SecureError, match="are signed by no key"):
        sessions[0].answer(requests[0], signing[0])
    sessions[2].answer(requests[2])


def test_a_client_that_is_not_listed_is_refused(signing):
    sessions, requests = asked_for_shares(signing)
    with pytest.raises(SecureError, match=r"There is no key of client 3 among this client's secure-peers\."):
        sessions[0].answer(requests[0], Signing(signing[0].key, signing[0].peers[:3]))


def test_files_that_hold_no_keys(tmp_path):
    (key, peers), *_ = written(tmp_path, [new_key()])
    with pytest.raises(ConfigError, match="nowhere cannot be read: No such file"):
        Signing.read(tmp_path / "nowhere", peers)
    with pytest.raises(ConfigError, match=r"peers.pub has a key that is none of P-384 in OpenSSH's format"):
        Signing.read(peers, peers)
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    right = peers.read_bytes()
    for wrong in (b"nothing\n", other.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), b"\n" + right):
        peers.write_bytes(wrong)
        with pytest.raises(ConfigError, match="none of P-384"):
            Signing.read(key, peers)
