"""The server: recovery from a kill at every single step, hostile replies, and who is who."""

import dataclasses
import json
import shutil
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch

from fedcef.core.errors import ConfigError, DivergedError, RunError
from fedcef.deployment import Coordinator, DeploymentSettings, Disk, Roster, RunId, without_data
from fedcef.deployment.messages import Result, Stamp, decode_reply
from fedcef.wire import Dense, FrameKind, Relay, Sparse, encode

from .forged import with_nan
from .loopback import Killed, Loopback
from .setting import equal, replayed, small_settings

EVERYONE = dict.fromkeys(range(5), False)


def answered(loop):
    """A round in which everyone has answered."""
    orders = loop.server.start_round(loop.now)
    for client, order in orders.items():
        assert loop.server.receive(loop.name(client), loop.workers[client].handle(order)).accepted


@pytest.mark.parametrize("method", ["fedcef", "feddr"])
@pytest.mark.parametrize("round_", [0, 3, 5], ids=["first", "plain", "with a snapshot"])
def test_a_kill_at_every_step_of_a_round_s_end(tmp_path, method, round_):
    """However far it came, the round is over or still to be done, and the run ends as if nothing had happened."""
    settings = small_settings(method, rounds=7)
    whole = replayed(settings, [EVERYONE] * 7)
    Loopback(settings, tmp_path / "before").run(round_)
    over = []
    for step in range(100):
        shutil.copytree(tmp_path / "before", tmp_path / str(step))
        loop = Loopback(settings, tmp_path / str(step))
        answered(loop)
        loop.server_disk.arm("kill", step)
        try:
            loop.server.close_round(1.0)
            killed = False
        except Killed:
            killed = True
        if not killed:
            break
        loop.reopen_server()
        over.append(loop.server.round - round_)
        assert equal(loop.server.state.replica, whole.replicas[loop.server.round])
        loop.run()
        assert equal(loop.server.state.replica, whole.replica)
        assert equal(loop.server.state.server, whole.server)
        assert [record["round"] for record in loop.server.state.folder.records()] == list(range(8))
    assert over == sorted(over)  # once it is over it stays so
    assert over[0] == 0
    assert over[-1] == 1
    assert len(over) >= (8 if round_ == 5 else 5)


@pytest.mark.parametrize("step", range(4))
def test_a_full_disk_stops_the_round_and_nothing_else(tmp_path, step):
    settings = small_settings("fedcef", rounds=3)
    loop = Loopback(settings, tmp_path).run(1)
    answered(loop)
    loop.server_disk.arm("full", step)
    with pytest.raises(RunError, match="No space left on device"):
        loop.server.close_round(1.0)
    assert loop.server.round == 1
    assert loop.server.close_round(2.0)["round"] == 2  # when there is room again
    loop.reopen_server()
    loop.run()
    assert equal(loop.server.state.replica, replayed(settings, [EVERYONE] * 3).replica)


def test_a_full_disk_after_the_log_does_not_undo_the_round(tmp_path):
    loop = Loopback(small_settings("fedcef", rounds=6), tmp_path).run(2)
    answered(loop)
    loop.server.state.tell = loop.notes.append
    loop.server_disk.arm("full", 6)  # in the snapshot
    assert loop.server.close_round(1.0)["round"] == 3
    assert "No space left" in loop.notes[-1]
    loop.reopen_server()
    assert loop.server.round == 3
    loop.run()
    assert equal(loop.server.state.replica, replayed(loop.settings, [EVERYONE] * 6).replica)


def test_recovery_equals_what_was_there(tmp_path):
    for method in ("fedcef", "fedcef lossy", "feddr"):
        loop = Loopback(small_settings(method), tmp_path / method).run(5)
        before = loop.server.state
        loop.reopen_server()
        after = loop.server.state
        assert equal(after.replica, before.replica)
        assert equal(after.server, before.server)
        assert after.last == before.last
        assert after.ledger.totals() == before.ledger.totals()
        assert after.note == before.note
        assert (loop.server.sent, loop.server.received) == (before.note["sent"], before.note["received"])


def test_records_that_were_lost_are_written_again(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(5)
    path = tmp_path / "server" / "rounds.jsonl"
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:4]) + '{"round": 4, "wi')
    loop.reopen_server()
    assert path.read_text() == text


def test_a_damaged_folder_says_what_is_damaged(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(5)
    folder = tmp_path / "server"
    for name, sentence in {
        "snapshot.bin": "The snapshot .* is damaged",
        "round_log.bin": "The round log .* (is damaged|has rounds|ends)",
        "run.json": "cannot be read",
        "accepted.bin": "its replies are not in accepted.bin",
    }.items():
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(b"FCEF\x09" + whole[5 : len(whole) // 2])
        with pytest.raises(RunError, match=sentence):
            loop.reopen_server()
        (folder / name).write_bytes(whole)
    loop.reopen_server()


def test_the_log_is_on_the_disk_before_the_next_order_exists(tmp_path):
    """Whatever an order carries was synced before."""
    synced = []

    class Watching(Disk):
        def append(self, path, data, at):
            super().append(path, data, at)
            synced.append((path.name, data))

    settings = small_settings("fedcef", snapshot_every=0)
    server = Coordinator.new(settings, without_data(settings.build_problem()), tmp_path / "run", disk=Watching())
    loop = Loopback(settings, tmp_path)
    loop.server = server
    for client in range(5):
        server.enroll(loop.name(client), client)
    synced.clear()
    loop.run(2)
    assert [name for name, _ in synced] == ["accepted.bin", "round_log.bin"] * 2
    order = server.start_round(0.0)[0]
    assert synced[-1][1] in order


def test_the_log_is_cut_where_a_snapshot_is_shorter(tmp_path):
    loop = Loopback(small_settings("zhang", rounds=9), tmp_path).run()
    log = loop.server.state.log
    assert log.end == 9
    assert log.first >= 6  # dense entries: two of them make a snapshot
    assert log.since(2) is None
    assert len(log.since(8)) == 1


HOSTILE = {
    "invalid frame": lambda frame, p: frame[:-1],
    "NaN": lambda frame, p: with_nan(encode({"delta": Dense(torch.zeros(p))}, FrameKind.UP, 1)),
    "another round's frame": lambda frame, p: encode({"delta": Dense(torch.zeros(p))}, FrameKind.UP, 2),
    "a down frame": lambda frame, p: encode({"delta": Dense(torch.zeros(p))}, FrameKind.DOWN, 1),
    "other names": lambda frame, p: encode({"sum": Dense(torch.zeros(p))}, FrameKind.UP, 1),
    "one part more": lambda frame, p: encode(
        {"delta": Dense(torch.zeros(p)), "more": Dense(torch.zeros(p))}, FrameKind.UP, 1
    ),
    "no parts": lambda frame, p: encode({}, FrameKind.UP, 1),
    "too short": lambda frame, p: encode({"delta": Dense(torch.zeros(p - 1))}, FrameKind.UP, 1),
    "too long": lambda frame, p: encode({"delta": Dense(torch.zeros(p + 1))}, FrameKind.UP, 1),
    "huge dim": lambda frame, p: encode(
        {"delta": Sparse(torch.ones(1), torch.tensor([2**31 - 1]), 2**31)}, FrameKind.UP, 1
    ),
    "float64": lambda frame, p: encode({"delta": Dense(torch.zeros(p, dtype=torch.float64))}, FrameKind.UP, 1),
    "a relay": lambda frame, p: encode({"delta": Relay.of([Dense(torch.zeros(p))], 1.0)}, FrameKind.UP, 1),
    "huge numbers": lambda frame, p: encode({"delta": Dense(torch.full((p,), 1e38))}, FrameKind.UP, 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages(tmp_path, name):
    """Refused, and the round goes on without them."""
    settings = small_settings("fedcef", rounds=3)
    loop = Loopback(settings, tmp_path).run(1)
    orders = loop.server.start_round(0.0)
    reply = decode_reply(loop.workers[0].handle(orders[0]), 10**6)
    forged = dataclasses.replace(reply, frame=HOSTILE[name](reply.frame, loop.problem.dim)).encode()
    tracemalloc.start()
    verdict = loop.server.receive(loop.name(0), forged)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert not verdict.accepted
    assert verdict.reason in ("invalid frame", "other vectors", "too large")
    for client in range(1, 5):
        assert loop.server.receive(loop.name(client), loop.workers[client].handle(orders[client])).accepted
    assert loop.server.can_close(0.0)
    assert loop.server.close_round(0.0)["reasons"] == {verdict.reason: 1}
    history = [EVERYONE, dict.fromkeys(range(1, 5), False)]
    assert equal(loop.server.state.replica, replayed(settings, history).replica)


def test_replies_that_claim_what_is_not_so(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(1)
    orders = loop.server.start_round(0.0)
    reply = decode_reply(loop.workers[0].handle(orders[0]), 10**6)

    def verdict(name="site-0", **changes):
        return loop.server.receive(name, dataclasses.replace(reply, **changes).encode()).reason

    assert verdict("nobody") == "unknown client"
    assert verdict("site-1") == "another client's"
    assert verdict(run=RunId(reply.run.settings, b"another.")) == "another run"
    assert verdict(round=0) == "late"
    assert verdict(round=2) == "another round"
    assert verdict(replica=bytes(16)) == "another replica"
    assert verdict(base=Stamp(0, bytes(16))) == "another state"
    assert verdict(samples=0) == "other vectors"
    assert loop.server.receive("site-0", b"x" * (loop.server.limit + 1)).reason == "unreadable"
    assert verdict() == ""
    assert verdict() == "duplicate"


def test_a_claim_of_many_samples_is_an_outlier_where_samples_count(tmp_path):
    data = {"data": {"name": "digits"}, "model": {"name": "softmax"}}
    settings = small_settings("fedda", rounds=2, weighting="samples", **data)
    loop = Loopback(settings, tmp_path)
    orders = loop.server.start_round(0.0)
    for client, order in orders.items():
        reply = decode_reply(loop.workers[client].handle(order), 10**6)
        reply = dataclasses.replace(reply, samples=10**12) if client == 3 else reply
        assert loop.server.receive(loop.name(client), reply.encode()).accepted
    assert loop.server.close_round(0.0)["reasons"] == {"outlier": 1}


def test_an_unreadable_reply_is_asked_for_again_but_not_for_ever(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path, deployment=DeploymentSettings(retries=2, min_clients=3))
    orders = loop.server.start_round(0.0)
    reply = loop.workers[0].handle(orders[0])
    for _ in range(2):
        assert loop.server.receive("site-0", reply[:-1]).order == orders[0]
    assert loop.server.receive("site-0", reply[:-1]).order is None
    assert loop.server.open.given_up == {0}
    assert loop.server.receive("site-0", reply).accepted  # better late than never


def test_random_bytes(tmp_path):
    """A reply with flipped bits and repaired checksums never raises, and never gets in unless it is unchanged."""
    loop = Loopback(small_settings("fedcef"), tmp_path)
    orders = loop.server.start_round(0.0)
    reply = loop.workers[0].handle(orders[0])
    random = np.random.default_rng(0)
    reasons = set()
    for _ in range(1500):
        data = bytearray(reply)
        for at in random.integers(len(data), size=random.integers(1, 3)):
            data[at] ^= 1 << int(random.integers(8))
        data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
        loop.server.open.accepted.clear()
        verdict = loop.server.receive("site-0", bytes(data))
        reasons.add(verdict.reason)
        if verdict.accepted:  # only what nobody checks: how long it took, how many samples
            changed = decode_reply(bytes(data), 10**6)
            assert changed.frame == decode_reply(reply, 10**6).frame
    assert len(reasons) > 5


def test_clients_and_their_numbers(tmp_path):
    roster = Roster(tmp_path / "clients.jsonl", 3, Disk())
    assert [roster.enroll("a"), roster.enroll("b", 2), roster.enroll("a")] == [0, 2, 0]
    again = Roster(tmp_path / "clients.jsonl", 3, Disk())
    assert (again.number("b"), again.identity(2), again.number("c")) == (2, "b", None)
    with pytest.raises(RunError, match="cannot become client 1"):
        again.enroll("a", 1)
    with pytest.raises(RunError, match="taken or not among"):
        again.enroll("c", 2)
    assert again.enroll("c") == 1
    with pytest.raises(RunError, match="one too many"):
        again.enroll("d")


def test_a_run_is_its_settings_and_a_number_drawn_once(tmp_path):
    settings = small_settings("fedcef")
    a, b = RunId.new(settings), RunId.new(settings)
    assert a.settings == b.settings
    assert a.nonce != b.nonce
    assert RunId.new(small_settings("fedcef", device="auto", snapshot_every=7)).settings == a.settings
    assert RunId.new(small_settings("fedcef", seed=1)).settings != a.settings
    assert RunId.new(small_settings("fedcef", local_lr=0.02)).settings != a.settings
    loop = Loopback(settings, tmp_path)
    run = loop.server.run
    loop.reopen_server()
    assert loop.server.run == run


def test_what_cannot_run_leaves_no_folder(tmp_path):
    problem = without_data(small_settings("zhang").build_problem())
    with pytest.raises(ConfigError, match="A round of zhang needs 5 clients and asks 2"):
        Coordinator.new(small_settings("zhang", clients_per_round=2), problem, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="needs 9 clients"):
        Coordinator.new(
            small_settings("fedcef"), problem, tmp_path / "run", deployment=DeploymentSettings(min_clients=9)
        )


def test_a_diverging_run_stops_before_the_log(tmp_path):
    settings = small_settings("fedda", rounds=60, local_lr=1e4, regularizer={"name": "zero"})
    loop = Loopback(settings, tmp_path, deployment=DeploymentSettings(outlier_factor=0))

    def play():
        orders = loop.server.start_round(0.0)
        for client, order in orders.items():
            loop.server.receive(loop.name(client), loop.workers[client].handle(order))
        loop.server.close_round(0.0)

    with pytest.raises((DivergedError, RunError), match=r"Try a smaller local_lr|too few replies"):
        [play() for _ in range(60)]
    loop.reopen_server()
    assert all(bool(vector.isfinite().all()) for vector in loop.server.state.replica.values())


def test_the_refused_are_listed(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path)
    loop.server.receive("nobody", b"")
    (line,) = (tmp_path / "server" / "refused.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == "unknown client"


def test_results_know_their_state():
    result = Result(RunId(b"settings", b"a-nonce."), 3, 1, None, bytes(16), 1, 0.0, b"frame")
    assert result.stamp == Stamp.after(None, 3, b"frame")


def test_a_bad_majority_is_measured_by_the_rounds_before(tmp_path):
    """It is refused, the others are not, and the round waits for better replies."""
    settings = small_settings("fedcef", rounds=3)
    loop = Loopback(settings, tmp_path).run(1)
    orders = loop.server.start_round(0.0)
    for client, order in orders.items():
        data = loop.workers[client].handle(order)
        data = loop.forged("large norm in reply", client, data)[1] if client < 3 else data
        assert loop.server.receive(loop.name(client), data).accepted
    loop.server.state.tell = loop.notes.append
    assert loop.server.close_round(0.0) is None
    assert "cannot end: 3 of its replies are far larger" in loop.notes[-1]
    assert sorted(loop.server.open.accepted) == [3, 4]
    assert loop.server.stalled(0.0)
    for client, order in loop.server.start_round(1.0).items():
        assert loop.server.receive(loop.name(client), loop.workers[client].handle(order)).accepted
    assert loop.server.close_round(1.0)["accepted"] == 5
    assert equal(loop.server.state.replica, replayed(settings, [EVERYONE] * 2).replica)
