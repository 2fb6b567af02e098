"""Secure aggregation without a network: the sum is exact, whoever leaves; below the threshold there is none."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="Flower is not installed: pip install 'fedcef[flower]'")

from fedcef.secure.client import ClientSession
from fedcef.secure.primitives import (
    SecureError,
    agreed,
    mask,
    new_seed,
    opened,
    public_key,
    put_together,
    sealed,
    shared_out,
)
from fedcef.secure.ring import needed, neighbourhoods
from fedcef.secure.server import ServerSession
from fedcef.secure.stages import Stage, StageMessage, decode_stage

from .session import RUN, numbers_of, plain_sum, play


def leaving(count, spare, pattern):
    """Who leaves at which of the four stages, `spare` of them in all."""
    who = list(range(count))[:: -1 if pattern % 2 else 1][:spare]
    stages = [[], [], [], []]
    for place, client in enumerate(who):
        stages[pattern // 2 if pattern < 8 else (place + pattern) % 4].append(client)
    return stages


@pytest.mark.parametrize("count", range(2, 21))
def test_the_sum_is_exact_whoever_leaves(count):
    """As many as can be spared at each stage, from either end of the numbers, and some at every stage.

    Up to six clients all of these are tried, beyond that two for each number of clients, in turn.
    """
    bits, spare = 13, count - needed(2 / 3, count)
    numbers = numbers_of(range(count), 17, bits, seed=count)
    patterns = range(10) if count <= 6 else (count % 8, 8 + count % 2)
    for pattern in patterns if spare else [0]:
        gone = leaving(count, spare, pattern)
        played = play(numbers, bits, gone)
        sent = set(numbers) - set(gone[0]) - set(gone[1]) - set(gone[2])
        assert played.masked.keys() == sent
        assert np.array_equal(played.server.total(), plain_sum(numbers, sent, bits)), (pattern, gone)


@pytest.mark.parametrize("bits", [1, 2, 8, 24, 31, 32])
def test_any_modulus(bits):
    numbers = {client: np.full(3, (1 << bits) - 1, dtype=np.uint32) for client in range(3)}
    assert np.array_equal(play(numbers, bits).server.total(), plain_sum(numbers, numbers, bits))


class Unshuffled:
    """In the place of the system's random numbers: the ring is in the order of the clients."""

    def shuffle(self, ring):
        pass


def test_neighbours_on_a_ring(monkeypatch):
    """Of each eleven neighbours eight must stay; on a ring that is not drawn it is known who is whose."""
    numbers = numbers_of(range(30), 40, 16)
    assert needed(2 / 3, 11) == 8
    with monkeypatch.context() as drawn:
        drawn.setattr("fedcef.secure.ring.random", SimpleNamespace(SystemRandom=Unshuffled))
        # client 3 never has a place; 25, 27 and 0 are three neighbours of 29, which is the most
        gone = ([3], [27], [0, 12], [25])
        played = play(numbers, 16, gone, neighbours=10)
        assert np.array_equal(played.server.total(), plain_sum(numbers, set(numbers) - {3, 27, 0, 12}, 16))
        with pytest.raises(SecureError, match="too few"):
            play(numbers, 16, ([3], [27], [0, 1], [25]), neighbours=10).server.total()
    near = neighbourhoods(range(30), 10)
    assert all(len(members) == 11 and client in members for client, members in near.items())
    assert all(client in near[other] for client, members in near.items() for other in members)
    assert neighbourhoods(range(30), 10) != near  # drawn anew


@pytest.mark.parametrize("stage", range(4))
def test_the_threshold(stage):
    """Of ten with a threshold of seven, three may leave and not four; what is said names the round."""
    numbers = numbers_of(range(10), 5, 9)
    gone = [[], [], [], []]
    gone[stage] = [1, 4, 9]
    assert needed(2 / 3, 10) == 7
    play(numbers, 9, gone, share=0.7).server.total()
    gone[stage] = [1, 4, 9, 2]
    with pytest.raises(SecureError, match=r"^Round 3 cannot be unmasked: too few .* tried again with new keys\.$"):
        play(numbers, 9, gone, share=0.7).server.total()


def test_six_shares_of_seven_give_nothing():
    seed = new_seed()
    shares = shared_out(seed, 7, list(range(20, 30)))
    assert put_together({who: shares[who] for who in (20, 22, 23, 24, 26, 27, 29)}, 7, list(range(20, 30))) == seed
    some = {who: shares[who] for who in (20, 22, 23, 24, 26, 27)}
    with pytest.raises(SecureError, match="6 shares are there, of which it takes 7"):
        put_together(some, 7, list(range(20, 30)))
    forged = {**some, 29: bytes(16)}
    assert put_together(forged, 7, list(range(20, 30))) != seed


def test_needed():
    assert [needed(2 / 3, n) for n in (1, 2, 3, 4, 6, 9, 10, 100)] == [2, 2, 2, 3, 4, 6, 7, 67]
    assert [needed(0.51, n) for n in (2, 4, 10)] == [2, 3, 6]  # always more than half


def test_a_masked_vector_looks_uniform_whatever_it_hides():
    """χ² of 64 bins over 50,000 numbers; a mask of zeros and one of the largest numbers look alike."""
    count, bits = 50_000, 10
    numbers = {0: np.zeros(count, np.uint32), 1: np.full(count, 1023, np.uint32), 2: np.arange(count, dtype=np.uint32)}
    numbers[2] &= 1023
    masked = play(numbers, bits).masked
    for vector in masked.values():
        found = np.bincount(vector >> 4, minlength=64)
        assert 20 < float(((found - count / 64) ** 2 / (count / 64)).sum()) < 125  # 63 degrees: 10⁻⁶ on either side
        assert vector.max() == 1023  # and the largest number occurs
    assert abs(np.corrcoef(masked[0], masked[1])[0, 1]) < 5 / count**0.5
    again = play(numbers, bits).masked
    assert not any(np.array_equal(masked[client], again[client]) for client in masked)  # new keys


def test_masks_are_of_all_bits_of_the_key():
    seed = bytes(16)
    assert np.array_equal(mask(seed, 5, 12), mask(seed, 9, 12)[:5])
    for bit in range(128):
        other = bytearray(16)
        other[bit // 8] ^= 1 << bit % 8
        assert not np.array_equal(mask(bytes(other), 5, 12), mask(seed, 5, 12))


def test_both_sides_agree_and_nobody_else():
    a, b, c = new_seed(), new_seed(), new_seed()
    key = agreed(a, public_key(b), b"session", b"x")
    assert key == agreed(b, public_key(a), b"session", b"x")
    others = [agreed(c, public_key(b), b"session", b"x"), agreed(a, public_key(b), b"other", b"x")]
    assert key not in [*others, agreed(a, public_key(b), b"session", b"y")]
    text = sealed(key, b"shares", b"what")
    assert opened(key, text, b"what") == b"shares"
    for wrong in ((others[0], text, b"what"), (key, text[:-1] + bytes([text[-1] ^ 1]), b"what"), (key, text, b"that")):
        with pytest.raises(SecureError, match="cannot be opened"):
            opened(*wrong)
    with pytest.raises(SecureError, match="none that can be used"):
        agreed(a, bytes(32), b"session", b"x")  # of low order


# what a client does not do


def ready(count=4):
    """A session in which everyone has masked, and the requests of the last stage."""
    numbers = numbers_of(range(count), 6, 8)
    played = play(numbers, 8, ([], [], [], range(count)))
    return played, {client: decode_stage(data) for client, data in played.server.unmask(played.masked, 8).items()}


def changed(request, **changes):
    return StageMessage(**{**request.__dict__, **changes})


def test_shares_of_both_secrets_of_a_client_are_never_revealed():
    played, requests = ready()
    session, reply = played.sessions[0].answer(requests[0])
    flags = dict(requests[0].entries)
    for other in (1, 2, 3):
        with pytest.raises(SecureError, match="has answered another request of the stage UNMASK"):
            session.answer(changed(requests[0], entries={**flags, other: b"\0"}))
    assert session.answer(requests[0])[1].encode() == reply.encode()
    dropped, second = played.sessions[1].answer(changed(requests[1], entries={**flags, 3: b"\0"}))
    assert second.entries[3] == dropped.shares[3][16:]
    assert second.entries[2] == dropped.shares[2][:16]


def test_what_is_asked_must_make_sense():
    played, requests = ready()
    flags = dict(requests[0].entries)
    with pytest.raises(SecureError, match="its own among them"):
        played.sessions[0].answer(changed(requests[0], entries={**flags, 0: b"\0"}))
    with pytest.raises(SecureError, match="2 messages of client 0's neighbourhood are in the sum; 3 are needed"):
        played.sessions[0].answer(changed(requests[0], entries={**flags, 2: b"\0", 3: b"\0"}))
    with pytest.raises(SecureError, match="for just these neighbours"):
        played.sessions[0].answer(changed(requests[0], entries={0: b"\1", 1: b"\1", 2: b"\1"}))


def test_the_same_masks_are_not_used_twice():
    played, _ = ready()
    session = played.sessions[0]
    numbers = numbers_of(range(4), 6, 8)[0]
    assert np.array_equal(session.mask(numbers, 8)[1], played.masked[0])  # the same message again
    with pytest.raises(SecureError, match="the same mask on two would show both"):
        session.mask(numbers + 1, 8)


def shared(count=4):
    server = ServerSession(RUN, 0, range(count))
    sessions = {}
    for client, data in server.begin().items():
        request = decode_stage(data)
        sessions[client], reply = ClientSession.begun(request).answer(request)
        server.take(client, decode_stage(reply.encode()))
    return server, sessions, {client: decode_stage(data) for client, data in server.share().items()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda keys: {**keys, 0: keys[1]}, "The keys of client 0 came back changed"),
        (lambda keys: {**keys, 2: keys[1]}, "have the same keys"),
    ],
)
def test_keys_that_a_client_does_not_accept(change, said):
    _, sessions, requests = shared()
    with pytest.raises(SecureError, match=said):
        sessions[0].answer(changed(requests[0], entries=change(dict(requests[0].entries))))


def test_thresholds_that_a_client_does_not_accept():
    _, sessions, requests = shared()
    for threshold in (0, 1, 2, 5):
        with pytest.raises(SecureError, match=rf"A threshold of {threshold} in a neighbourhood of 4 is not allowed"):
            sessions[0].answer(changed(requests[0], threshold=threshold))
    played, _ = ready()
    attached = StageMessage(Stage.MASKED, RUN, played.server.session, 3, 0)
    with pytest.raises(SecureError, match="this client's settings for 4"):
        played.sessions[0].masking(attached, share=1.0)


def test_a_share_that_was_changed_on_its_way_is_noticed():
    server, sessions, requests = shared()
    for client, request in requests.items():
        sessions[client], reply = sessions[client].answer(request)
        server.take(client, reply)
    attached = decode_stage(server.attachments()[0])
    swapped = changed(attached, entries={**attached.entries, 1: attached.entries[2], 2: attached.entries[1]})
    with pytest.raises(SecureError, match="cannot be opened"):
        sessions[0].masking(swapped)


def test_a_client_that_lies_about_shares_spoils_the_round_and_nothing_else():
    played, requests = ready()
    for client, request in requests.items():
        _, reply = played.sessions[client].answer(request)
        lie = {**reply.entries, 2: bytes(16)} if client == 0 else reply.entries
        played.server.take(client, changed(reply, entries=lie))
    with pytest.raises(SecureError, match="The shares of client 2's mask do not fit together"):
        played.server.total()


def test_replies_of_another_session_are_not_taken():
    first, second = ServerSession(RUN, 0, range(3)), ServerSession(RUN, 0, range(3))
    request = decode_stage(first.begin()[0])
    _, reply = ClientSession.begun(request).answer(request)
    with pytest.raises(SecureError, match="another session or stage"):
        second.take(0, reply)
    with pytest.raises(SecureError, match="another session or stage"):
        first.take(1, reply)
    with pytest.raises(SecureError, match="not the entries that it should"):
        first.take(0, changed(reply, entries={0: b"short"}))
    with pytest.raises(SecureError, match="no keys here"):
        first.take(0, changed(reply, stage=Stage.REFUSED, entries={}, remark="no keys here"))
    first.take(0, reply)
    assert first.waited_for() == {1, 2}


def test_the_commitment_is_a_hash_of_the_seed():
    request = decode_stage(ServerSession(RUN, 0, range(2)).begin()[0])
    session, reply = ClientSession.begun(request).answer(request)
    assert reply.entries[0][64:] == hashlib.sha256(session.own).digest()
