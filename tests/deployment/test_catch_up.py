"""Clients that come and go: what really goes down to them is what the ledger counts, in bounded memory."""

import shutil

import pytest

from fedcef.core.disk import Disk
from fedcef.deployment.messages import OVERHEAD, decode_order
from fedcef.deployment.round_log import RoundLog
from fedcef.simulation.snapshots import whole
from fedcef.wire import Dense, FrameKind, Sparse, decode, encode, frame_nbytes, split

from .loopback import Loopback
from .setting import equal, replayed, simulation, small_settings

SPARSE = {"num_clients": 9, "clients_per_round": 2, "rounds": 16, "regularizer": {"name": "l1", "weight": 3.0}}
"""A model of few entries, and cohorts that leave most clients away for long."""


class Watched(Loopback):
    """Notes what every order brings."""

    def _send_all(self, orders):
        for order in orders.values():
            self.orders.append(decode_order(order))
        super()._send_all(orders)

    def __init__(self, *args, **options):
        self.orders = []
        super().__init__(*args, **options)


@pytest.mark.parametrize(
    ("method", "precision"),
    [
        *((method, "float32") for method in ("fedcef", "fedcef lossy", "fedcef dense", "scaffold", "feddr")),
        ("fedcef lossy", "float64"),
    ],
)
def test_what_is_sent_is_what_is_counted(tmp_path, method, precision):
    settings = small_settings(method, **SPARSE, precision=precision)
    deployed, simulated = Watched(settings, tmp_path), simulation(settings)
    down = 0
    for _ in range(settings.rounds):
        deployed.play()
        record = deployed.records[-1]
        assert record["transport_down_bytes"] == down + 2 * record["round"] * OVERHEAD
        simulated.step()
        counted = simulated.ledger.totals()
        assert {name: record[name] for name in counted} == counted
        down = counted["wire_down_bytes"]
    assert deployed.outcomes.keys() == {"accepted"}
    assert equal(deployed.server.state.replica, simulated.replica)
    orders = [[decode(frame) for frame in order.frames] for order in deployed.orders]
    snapshots = [frame for order in orders for frame in order if frame.kind == FrameKind.STATE]
    assert snapshots
    if method.startswith("fedcef"):
        assert 0 < counted["wire_catch_up_bytes"] < counted["wire_down_bytes"]
        assert any(isinstance(payload, Sparse) for frame in snapshots for payload in frame.message.values())
    if method in ("fedcef", "fedcef lossy"):  # others have frames of which two are longer than a snapshot
        assert any(len(order) > 1 for order in orders)


def test_catch_up_is_what_fresh_frames_do_not_explain(tmp_path):
    """Of the orders themselves: whatever an order brings beyond its last frame, if the client was away."""
    deployed = Watched(small_settings("fedcef lossy", **SPARSE, snapshot_every=0), tmp_path).run()
    log, _ = split((tmp_path / "server" / "round_log.bin").read_bytes())
    assert len(log) == SPARSE["rounds"]
    beyond = [sum(map(len, order.frames)) - len(log[order.round - 1]) for order in deployed.orders if order.round]
    assert sum(bytes_ for bytes_ in beyond if bytes_ > 0) == deployed.records[-2]["wire_catch_up_bytes"] > 0


@pytest.mark.parametrize("snapshot_every", [0, 4])
def test_a_server_that_is_killed_counts_on(tmp_path, snapshot_every):
    settings = small_settings("fedcef lossy", **SPARSE, snapshot_every=snapshot_every)
    whole_run = Loopback(settings, tmp_path / "whole").run()
    killed = Loopback(settings, tmp_path / "killed")
    for _ in range(settings.rounds):
        killed.play()
        killed.reopen_server()
    names = [name for name in whole_run.records[-1] if name.startswith(("wire", "paper"))]
    assert len(names) == 6
    for one, other in zip(whole_run.records, killed.records, strict=True):
        assert [one[name] for name in names] == [other[name] for name in names]
    summary = killed.server.finish()
    assert summary["wire_catch_up_bytes"] == whole_run.records[-1]["wire_catch_up_bytes"] > 0


def test_a_negative_zero_arrives(tmp_path):
    """Group penalties leave them; a client that took a snapshot must have the server's replica to the bit."""
    group = {"name": "group_lasso", "weight": 3.0, "sizes": [10, 10, 10, 10]}
    settings = small_settings("fedcef lossy", **{**SPARSE, "regularizer": group})
    deployed = Watched(settings, tmp_path).run()
    z = deployed.server.state.replica["z"]
    assert (z.signbit() & (z == 0)).any()
    assert deployed.outcomes.keys() == {"accepted"}  # nobody asked again
    assert equal(deployed.server.state.replica, replayed(settings, deployed.history).replica)
    assert any(decode(order.frames[0]).kind == FrameKind.STATE for order in deployed.orders if order.frames)


@pytest.mark.parametrize("snapshot_every", [0, 3])
def test_the_log_in_memory_is_no_longer_than_a_replica(tmp_path, snapshot_every):
    settings = small_settings("fedcef", rounds=40, num_clients=6, clients_per_round=1, snapshot_every=snapshot_every)
    loop = Loopback(settings, tmp_path)
    state = loop.server.state
    largest = int(frame_nbytes(whole(state.replica)))
    held = []
    while not loop.server.finished:
        loop.play()
        held.append(sum(map(len, state.log.since(state.log.first))))
        assert state.log.end == state.round
    assert max(held) <= largest
    assert state.log.first > 20  # most of the rounds are forgotten
    assert state.frames_since(state.log.first - 1) == (state.snapshot_frame,)  # who was away for very long
    assert state.frames_since(state.round) == ()
    on_disk = (tmp_path / "server" / "round_log.bin").stat().st_size
    assert (on_disk > 2 * largest) == (snapshot_every == 0)  # recovery needs it all if there is no snapshot
    loop.reopen_server()
    assert loop.server.state.log.first == state.log.first
    assert equal(loop.server.state.replica, state.replica)


def test_the_last_entry_is_kept_however_long(tmp_path):
    path = tmp_path / "log.bin"
    path.write_bytes(b"")
    log = RoundLog(path, Disk())
    z = small_settings().build_problem().z0
    frames = [encode({"z": Dense(z)}, FrameKind.DOWN, t) for t in range(4)]
    for frame in frames:
        log.append(frame)
    log.forget(longer_than=1)
    assert (log.first, log.end, log.since(3), log.since(2)) == (3, 4, (frames[3],), None)
    assert path.stat().st_size == 4 * len(frames[0])
    assert RoundLog(path, Disk()).first == 0
    log.cut()
    log.append(frames[0])
    assert path.read_bytes() == frames[3] + frames[0]
    log.forget(longer_than=2 * len(frames[0]))
    assert (log.first, log.end) == (3, 5)


def test_a_client_that_lost_its_replica_takes_a_snapshot_late_in_a_run(tmp_path):
    settings = small_settings("fedcef lossy", **{**SPARSE, "rounds": 30})
    deployed = Watched(settings, tmp_path).run(20)
    client = next(iter(deployed.server.start_round(deployed.now)))
    shutil.rmtree(deployed.folder(client), ignore_errors=True)
    deployed.workers[client] = deployed.open_worker(client)
    deployed.run()
    assert equal(deployed.server.state.replica, replayed(settings, deployed.history).replica)
