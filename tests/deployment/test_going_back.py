"""A server that was put back from an older copy: clients refuse, an operator says so, and the run goes on."""

import json
import shutil

import pytest

from fedcef.core.errors import ConfigError, RunError
from fedcef.deployment.going_back import go_back

from .loopback import Loopback
from .setting import equal, replayed, small_settings
from .test_faults import control_gap

EVERYONE = dict.fromkeys(range(5), False)


def put_back(loop, kept, seen):
    """Play on from `kept` rounds to `seen`, and put the server back to where it was."""
    loop.run(kept)
    shutil.copytree(loop.path / "server", loop.path / "copy")
    loop.run(seen)
    shutil.rmtree(loop.path / "server")
    (loop.path / "copy").rename(loop.path / "server")
    return Loopback(loop.settings, loop.path)


def test_clients_that_have_seen_more_say_so(tmp_path):
    loop = put_back(Loopback(small_settings("fedcef"), tmp_path), 4, 6)
    orders = loop.server.start_round(0.0)
    for client, order in orders.items():
        loop.server.receive(loop.name(client), loop.workers[client].handle(order))
    assert loop.server.refused_by_all() == "Round 4 is over; this client has seen 5 rounds."


@pytest.mark.parametrize("method", ["fedcef", "fedcef lossy", "scaffold"])
@pytest.mark.parametrize(("seen", "afresh"), [(6, False), (8, True)], ids=["a little older", "older"])
def test_an_older_server_goes_on_and_c_stays_the_mean_of_what_clients_have(tmp_path, method, seen, afresh):
    """A client keeps its last two saves, and what they lead to; if all that is of rounds that are no more, it begins
    afresh."""
    loop = put_back(Loopback(small_settings(method), tmp_path), 4, seen)
    assert go_back(tmp_path / "server") == 4
    loop = Loopback(loop.settings, tmp_path)
    loop.history = [EVERYONE] * 4
    loop.run()
    assert loop.history[4:] == [dict.fromkeys(range(5), afresh)] + [EVERYONE] * 4
    reference = replayed(loop.settings, loop.history)
    assert equal(loop.server.state.replica, reference.replica)
    assert equal(loop.table(), reference.clients)
    assert control_gap(loop, reference) < 1e-5


def test_clients_whose_last_message_the_older_server_knows_keep_their_state(tmp_path):
    """Of a cohort in each round, the others have seen nothing since."""
    loop = Loopback(small_settings("fedcef", clients_per_round=2, rounds=12), tmp_path).run(6)
    history, before = list(loop.history), {client for members in loop.history for client in members}
    shutil.copytree(tmp_path / "server", tmp_path / "copy")
    loop.run(7)
    gone = set(loop.history[6])
    shutil.rmtree(tmp_path / "server")
    (tmp_path / "copy").rename(tmp_path / "server")
    go_back(tmp_path / "server")
    loop = Loopback(loop.settings, tmp_path)
    loop.history = history
    loop.run()
    kept = {client for client in before - gone if any(client in members for members in loop.history[6:])}
    assert kept
    assert all(not members.get(client, False) for members in loop.history for client in kept)
    assert equal(loop.server.state.replica, replayed(loop.settings, loop.history).replica)


def test_a_folder_whose_log_is_older_than_its_records_goes_on_too(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(4)
    older = {name: (tmp_path / "server" / name).read_bytes() for name in ("round_log.bin", "accepted.bin")}
    loop.run(5)
    for name, data in older.items():
        (tmp_path / "server" / name).write_bytes(data)
    with pytest.raises(RunError, match=r"`fedcef deployment recover .*server` and resume"):
        loop.reopen_server()
    assert go_back(tmp_path / "server") == 4
    lines = (tmp_path / "server" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [0, 1, 2, 3, 4]
    assert Loopback(loop.settings, tmp_path).run().server.finished


def test_who_cannot_go_back_is_told(tmp_path):
    loop = Loopback(small_settings("zhang"), tmp_path / "zhang").run(2)
    with pytest.raises(RunError, match="zhang cannot do without the states that its clients would lose"):
        go_back(loop.path / "server")
    privacy = {"noise": 1.0, "clip": 1.0, "delta": 1e-5}
    loop = Loopback(small_settings("fedcef", privacy=privacy), tmp_path / "private").run(1)
    with pytest.raises(ConfigError, match="is private, and clients count what they have sent by its id"):
        go_back(loop.path / "server")
    with loop.server.state.folder.locked(), pytest.raises((RunError, ConfigError)):
        go_back(loop.path / "server")


def test_a_running_server_is_left_alone(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(2)
    before = (tmp_path / "server" / "run.json").read_bytes()
    with loop.server.state.folder.locked(), pytest.raises(RunError, match="is being worked on by process"):
        go_back(tmp_path / "server")
    assert (tmp_path / "server" / "run.json").read_bytes() == before


def test_what_a_damaged_log_recommends_works(tmp_path):
    """A log with a damaged entry in its middle, and replies that end before the records do."""
    loop = Loopback(small_settings("fedcef"), tmp_path).run(4)
    older = (tmp_path / "server" / "accepted.bin").read_bytes()
    loop.run(5)
    log = tmp_path / "server" / "round_log.bin"
    (tmp_path / "server" / "accepted.bin").write_bytes(older)
    log.write_bytes(b"G" + log.read_bytes()[1:])
    with pytest.raises(RunError, match=r"`fedcef deployment recover .*server` and resume"):
        loop.reopen_server()
    assert go_back(tmp_path / "server") == 4
    assert Loopback(loop.settings, tmp_path).run().server.finished
