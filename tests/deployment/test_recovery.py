"""Damage to the server's own files: what can be made again is, and what cannot is named."""

import json
import shutil

import pytest

from fedcef.core.errors import RunError
from fedcef.deployment import checks
from fedcef.wire import split

from .faulty_disk import Killed
from .loopback import Loopback
from .setting import equal, replayed, small_settings

EVERYONE = dict.fromkeys(range(5), False)


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 4
    return bytes(changed)


DAMAGE = {
    "a bit of the last entry": lambda log: flipped(log, -9),
    "a bit of the first entry": lambda log: flipped(log, 30),
    "the last entry cut": lambda log: log[:-5],
    "two entries gone": lambda log: b"".join(split(log)[0][:-2]),
    "a gap": lambda log: b"".join(frame for i, frame in enumerate(split(log)[0]) if i != 3),
    "emptied": lambda log: b"",
    "zeros": lambda log: bytes(len(log)),
    "gone": None,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("method", ["fedcef", "fedcef lossy"])
def test_rounds_that_the_log_has_lost_are_made_again_from_their_replies(tmp_path, damage, method):
    loop = Loopback(small_settings(method), tmp_path).run(5)
    log, before = tmp_path / "server" / "round_log.bin", loop.server.state
    entries = split(log.read_bytes())[0]
    if DAMAGE[damage] is None:
        log.unlink()
    else:
        log.write_bytes(DAMAGE[damage](log.read_bytes()))
    loop.reopen_server()  # which asserts that no round was lost
    assert loop.server.round == 5
    assert equal(loop.server.state.replica, before.replica)
    assert equal(loop.server.state.server, before.server)
    assert loop.server.state.last == before.last
    assert split(log.read_bytes())[0][-2:] == entries[-2:]
    assert any("round_log" in sentence for sentence in loop.notes)
    loop.run()
    assert equal(loop.server.state.replica, replayed(loop.settings, [EVERYONE] * 9).replica)


@pytest.mark.parametrize("rest", [b"\x9c\xff", b"{", bytes(40)])
def test_what_a_failing_disk_left_behind_the_records_spoils_none(tmp_path, rest):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(3)
    rounds = tmp_path / "server" / "rounds.jsonl"
    rounds.write_bytes(rounds.read_bytes() + rest)
    loop.reopen_server()
    loop.run()
    assert [json.loads(line)["round"] for line in rounds.read_bytes().splitlines()] == list(range(10))


def test_a_reply_that_a_newer_version_would_not_accept_is_named(tmp_path, monkeypatch):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(2)
    monkeypatch.setattr(checks, "MODERATE", 1e-12)
    with pytest.raises(RunError, match=r"Round 0 cannot .*client 0's reply in .*accepted.bin.*\(too large: .*version"):
        loop.reopen_server()


def test_a_damaged_log_is_put_aside(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(5)
    log = tmp_path / "server" / "round_log.bin"
    log.write_bytes(damaged := flipped(log.read_bytes(), 30))
    loop.reopen_server()
    assert log.with_suffix(".damaged").read_bytes() == damaged


def test_rounds_that_are_nowhere_are_named(tmp_path):
    """Neither file has the last rounds, and the records tell that there were some."""
    loop = Loopback(small_settings("fedcef"), tmp_path).run(4)
    shutil.copytree(tmp_path / "server", tmp_path / "older")
    loop.run(5)
    for name in ("round_log.bin", "accepted.bin"):
        shutil.copy(tmp_path / "older" / name, tmp_path / "server" / name)
    with pytest.raises(RunError, match=r"has 5 rounds, but .*round_log.bin and accepted.bin have only 4.*newest copy"):
        loop.reopen_server()
    damaged = flipped((tmp_path / "older" / "round_log.bin").read_bytes(), 30)
    (tmp_path / "server" / "round_log.bin").write_bytes(damaged)
    with pytest.raises(RunError, match=r"The round log .* from the newest copy .*deployment recover"):
        loop.reopen_server()
    assert (tmp_path / "server" / "round_log.bin").read_bytes() == damaged


@pytest.mark.parametrize("rounds", [3, 5], ids=["at a snapshot", "after one"])
def test_a_sum_that_is_missing_is_as_bad_as_a_damaged_one(tmp_path, rounds):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(rounds)
    (tmp_path / "server" / "sums" / "000002.sum").unlink()
    with pytest.raises(RunError, match=r"the sum of what client 2 sent: .*000002.sum is missing"):
        loop.reopen_server()


def test_a_sum_that_goes_missing_while_the_server_runs_stops_the_round_that_needs_it(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(5)
    (tmp_path / "server" / "sums" / "000002.sum").unlink()
    shutil.rmtree(loop.folder(2))
    loop.workers[2] = loop.open_worker(2)
    orders = loop.server.start_round(0.0)
    for client, order in orders.items():
        verdict = loop.server.receive(loop.name(client), loop.workers[client].handle(order))
        while verdict.order is not None:
            verdict = loop.server.receive(loop.name(client), loop.workers[client].handle(verdict.order))
    with pytest.raises(RunError, match="the sum of what client 2 sent"):
        loop.server.close_round(1.0)


def test_a_kill_before_the_first_sums_are_written_is_no_loss(tmp_path):
    """Then the snapshot tells that clients have sent something, and their replies are still there."""
    loop = Loopback(small_settings("fedcef"), tmp_path).run(2)
    accepted = tmp_path / "server" / "accepted.bin"
    orders = loop.server.start_round(0.0)
    for client, order in orders.items():
        loop.server.receive(loop.name(client), loop.workers[client].handle(order))
    loop.server.state.sums.fold = lambda *_: (_ for _ in ()).throw(RunError("killed"))
    loop.server.close_round(1.0)
    assert loop.server.round == 3
    assert accepted.stat().st_size
    assert not (tmp_path / "server" / "sums").exists()
    loop.reopen_server()
    loop.run()
    assert equal(loop.server.state.replica, replayed(loop.settings, [EVERYONE] * 9).replica)


def test_what_a_killed_server_left_is_durable_before_it_is_told(tmp_path):
    """Killed when the replies were written and not yet synced: the round ends from them, and then the power fails."""
    loop = Loopback(small_settings("fedcef"), tmp_path).run(4)
    for client, order in loop.server.start_round(0.0).items():
        loop.server.receive(loop.name(client), loop.workers[client].handle(order))
    loop.server_disk.arm("kill", 1)  # accepted.bin is written
    with pytest.raises(Killed):
        loop.server.close_round(1.0)
    loop.reopen_server()
    assert loop.server.round == 5
    loop.server_disk._lose_power()
    loop.reopen_server()  # which asserts that no round was lost
    assert loop.server.round == 5
