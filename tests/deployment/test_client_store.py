"""A client's state on disk: whole after a kill at any step, and damage is found."""

import pytest
import torch

from fedcef.core.errors import RunError
from fedcef.deployment import ClientStore, RunId
from fedcef.deployment.client_store import ClientState
from fedcef.deployment.messages import Stamp

from .faulty_disk import FaultyDisk, Killed
from .loopback import Loopback
from .setting import small_settings

RUN, OTHER = RunId(b"settings", b"a-nonce."), RunId(b"settings", b"another.")


def state(round_: int) -> ClientState:
    def vectors(x):
        return {"c_i": torch.full((5,), float(x)), "v_i": torch.full((5,), -float(x))}

    base = Stamp(round_ - 1, bytes([round_] * 16)) if round_ else None
    stamp = Stamp(round_, bytes([round_ + 1] * 16))
    return ClientState(
        round_, {"z": torch.arange(5.0)}, base, vectors(round_), stamp, vectors(round_ + 1), b"reply %d" % round_
    )


def same(a: ClientState, b: ClientState) -> bool:
    vectors = all(
        torch.equal(x[name], y[name])
        for x, y in ((a.replica, b.replica), (a.committed, b.committed), (a.pending, b.pending))
        for name in x.keys() | y.keys()
    )
    return vectors and (a.round, a.base, a.stamp, a.reply) == (b.round, b.base, b.stamp, b.reply)


def test_it_is_read_back_by_another_process(tmp_path):
    store = ClientStore(tmp_path, 3)
    assert store.load(RUN) is None
    for t in range(5):
        store.save(RUN, state(t))
        assert same(ClientStore(tmp_path, 3).load(RUN), state(t))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("fault", ["kill", "full"])
@pytest.mark.parametrize("step", range(4))
def test_a_fault_at_any_step_leaves_the_old_state_or_the_new_one(tmp_path, fault, step):
    disk = FaultyDisk()
    store = ClientStore(tmp_path, 3, disk)
    for t in range(3):
        store.save(RUN, state(t))
    disk.arm(fault, step)
    with pytest.raises((Killed, RunError)) as caught:
        store.save(RUN, state(3))
    if fault == "full":
        assert "No space left on device; what it held before is still there" in str(caught.value)
        renamed = step == 3  # the name is there, only its folder was not synced
        assert not list(tmp_path.glob("*.part"))
    found = ClientStore(tmp_path, 3).load(RUN)
    renamed = step == 3
    assert same(found, state(3 if renamed else 2))
    again = ClientStore(tmp_path, 3)
    again.load(RUN)
    again.save(RUN, state(4))
    assert same(ClientStore(tmp_path, 3).load(RUN), state(4))


def test_damage_anywhere_is_found_and_the_state_before_is_used(tmp_path):
    store = ClientStore(tmp_path, 3)
    store.save(RUN, state(0))
    store.save(RUN, state(1))
    newest = tmp_path / f"{RUN}-1.state"
    whole = newest.read_bytes()
    for at in range(0, len(whole), 7):
        newest.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        damaged = ClientStore(tmp_path, 3)
        assert same(damaged.load(RUN), state(0))
        assert len(damaged.damaged) == 1
        assert str(newest) in damaged.damaged[0]
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        newest.write_bytes(whole[:length])
        assert same(ClientStore(tmp_path, 3).load(RUN), state(0))
    (tmp_path / f"{RUN}-0.state").write_bytes(b"")
    assert ClientStore(tmp_path, 3).load(RUN) is None


def test_states_of_other_runs_and_other_clients_are_left_alone(tmp_path):
    ClientStore(tmp_path, 3).save(RUN, state(1))
    store = ClientStore(tmp_path, 3)
    assert store.load(OTHER) is None
    assert store.other_runs(OTHER)
    store.save(OTHER, state(0))
    assert same(ClientStore(tmp_path, 3).load(RUN), state(1))
    stranger = ClientStore(tmp_path, 4)
    assert stranger.load(RUN) is None
    assert "the state of client 3" in stranger.damaged[0]


def test_what_a_killed_client_left_is_durable_before_it_is_told(tmp_path):
    """Killed right after the new state took its name; its reply is sent again from there, and then the power fails."""
    loop = Loopback(small_settings("fedcef", rounds=3), tmp_path).run(1)
    order = loop.server.start_round(0.0)[0]
    whole = loop.disks[0]
    whole.arm("kill", 3)  # half written, synced, renamed, and not known to the folder
    with pytest.raises(Killed):
        loop.workers[0].handle(order)
    loop.workers[0] = loop.open_worker(0)
    reply = loop.workers[0].handle(order)
    whole._lose_power()
    saved = ClientStore(loop.folder(0), 0).load(loop.server.run)
    assert (saved.round, saved.reply) == (1, reply)
