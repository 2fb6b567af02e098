"""Who is asked how often, and how long a round waits for the last."""

import pytest

from fedcef.core.errors import ConfigError
from fedcef.deployment import DeploymentSettings
from fedcef.deployment.attendance import LONGEST, Attendance

from .loopback import Loopback
from .setting import equal, replayed, small_settings


def asked(rounds, misses=3, back_in=()):
    """The rounds in which a client is asked that takes part in some only."""
    attendance, found = Attendance(misses), []
    for round_ in range(rounds):
        if 7 not in attendance.resting(round_):
            found.append(round_)
            attendance = attendance.after(round_, {1, 7}, {1, 7} if round_ in back_in else {1})
        else:
            attendance = attendance.after(round_, {1}, {1})
    return found


def test_who_is_missing_is_asked_less_and_less_often():
    assert asked(40) == [0, 1, 2, 4, 8, 16, 32]
    assert max(b - a for a, b in zip(asked(300), asked(300)[1:], strict=False)) == LONGEST
    assert asked(12, misses=0) == list(range(12))
    assert asked(12, back_in=[4]) == [0, 1, 2, 4, 5, 6, 7, 9]  # as before once it has taken part


def play(loop, late=()):
    """A round in which some never answer, until the server would end it; returns when that is."""
    orders = loop.server.start_round(loop.now)
    for client, order in orders.items():
        loop.now += 1.0
        if client not in late:
            loop.server.receive(loop.name(client), loop.workers[client].handle(order))
        loop.server.can_close(loop.now)
    began = loop.now
    while not loop.server.can_close(loop.now):
        loop.now += 1.0
        assert not loop.server.stalled(loop.now)
    loop.history.append(dict.fromkeys(sorted(loop.server.open.accepted), False))
    loop.server.close_round(loop.now)
    return loop.now - began


def test_a_straggler_is_left_out_of_most_rounds_and_the_others_do_not_wait(tmp_path):
    deployment = DeploymentSettings(deadline_s=100, min_clients=3)
    loop = Loopback(small_settings("fedcef"), tmp_path, deployment=deployment)
    waited = [play(loop, late=[4]) for _ in range(9)]
    assert [round_ for round_, seconds in enumerate(waited) if seconds] == [0, 1, 2, 4, 8]
    records = loop.server.state.folder.records()[1:]
    assert [record["clients"] for record in records] == [[0, 1, 2, 3]] * 9
    assert [record["missed"] for record in records] == [[4] if seconds else [] for seconds in waited]
    assert equal(loop.server.state.replica, replayed(loop.settings, loop.history).replica)


def test_what_needs_everyone_asks_everyone(tmp_path):
    loop = Loopback(small_settings("zhang"), tmp_path, deployment=DeploymentSettings(deadline_s=10, misses=1))
    assert loop.server._attendance.misses == 0


def test_nobody_is_left_out_where_too_few_would_be_left(tmp_path):
    """Neither in a round that begins, nor in one that is tried again."""
    deployment = DeploymentSettings(deadline_s=10, min_clients=4, misses=1)
    loop = Loopback(small_settings("fedcef"), tmp_path, deployment=deployment)
    play(loop, late=[4])
    assert set(loop.server.start_round(loop.now, [0, 1, 2, 3, 4])) == {0, 1, 2, 3}
    assert set(loop.server.start_round(loop.now)) == {0, 1, 2, 3, 4}
    loop.reopen_server()
    loop.server._attendance = loop.server._attendance.after(0, [4], [])
    assert set(loop.server.start_round(loop.now, [0, 1, 2, 4])) == {0, 1, 2, 4}


@pytest.mark.parametrize(("quorum", "waits"), [(1.0, 99.0), (0.8, 19.0), (0.5, 18.0)])
def test_a_quorum_gives_the_others_some_grace(tmp_path, quorum, waits):
    """From when it was there: with 80% of five that is the fourth reply, with 50% the third."""
    deployment = DeploymentSettings(deadline_s=104, min_clients=3, quorum=quorum, grace_s=20, misses=0)
    loop = Loopback(small_settings("fedcef"), tmp_path, deployment=deployment)
    assert play(loop, late=[4]) == waits


def test_a_quorum_is_never_less_than_what_a_round_needs(tmp_path):
    deployment = DeploymentSettings(deadline_s=105, min_clients=5, quorum=0.2, grace_s=1)
    loop = Loopback(small_settings("fedcef"), tmp_path, deployment=deployment)
    loop.server.start_round(0.0)
    assert not loop.server.can_close(50.0)
    with pytest.raises(ConfigError):
        small_settings("fedcef", deployment={"quorum": 1.5})


def test_records_that_are_written_again_say_who_took_part(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path, deployment=DeploymentSettings(deadline_s=10, min_clients=3))
    for late in ([1], [2, 3], [], [0]):
        play(loop, late)
    path = tmp_path / "server" / "rounds.jsonl"
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:3]))
    loop.reopen_server()
    assert path.read_text() == text
