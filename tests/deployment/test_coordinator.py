"""The server: recovery from a kill at every single step, hostile replies, and who is who."""

import json
import shutil

import pytest

from fedcef.core.errors import ConfigError, DivergedError, RunError
from fedcef.deployment import Coordinator, DeploymentSettings, Disk, without_data
from fedcef.deployment.coordinator import clients_needed
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run

from .faulty_disk import FaultyDisk, Killed
from .loopback import Loopback
from .setting import equal, replayed, small_settings

EVERYONE = dict.fromkeys(range(5), False)


def answered(loop):
    """A round in which everyone has answered."""
    orders = loop.server.start_round(loop.now)
    for client, order in orders.items():
        assert loop.server.receive(loop.name(client), loop.workers[client].handle(order)).accepted


@pytest.mark.parametrize(
    ("method", "round_"),
    [("fedcef", 0), ("fedcef", 3), ("fedcef", 5), ("feddr", 5)],
    ids=["first", "plain", "with a snapshot", "with a snapshot of a server's own state"],
)
def test_a_kill_at_every_step_of_a_round_s_end(tmp_path, method, round_):
    """However far it came, the round is over or still to be done, and the run ends as if nothing had happened."""
    rounds = round_ + 2
    settings = small_settings(method, rounds=rounds, num_clients=3)
    whole = replayed(settings, [dict.fromkeys(range(3), False)] * rounds)
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
        assert [record["round"] for record in loop.server.state.folder.records()] == list(range(rounds + 1))
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
        "run.json": "cannot be read",
        "accepted.bin": "its replies are not in accepted.bin",
    }.items():
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(b"FCEF\x09" + whole[5 : len(whole) // 2])
        with pytest.raises(RunError, match=sentence):
            loop.reopen_server()
        (folder / name).write_bytes(whole)
    loop.reopen_server()


def test_a_run_goes_on_with_the_settings_that_it_began_with(tmp_path):
    """All but what is a machine's own business."""
    loop = Loopback(small_settings("fedcef"), tmp_path).run(2)
    config = tmp_path / "server" / "config.toml"
    whole = config.read_text()
    config.write_text(whole.replace("local_lr = 0.01", "local_lr = 0.02"))
    with pytest.raises(RunError, match=r"config.toml is not as the run was begun with; put it back"):
        loop.reopen_server()
    config.write_text(whole.replace("snapshot_every = 3", "snapshot_every = 2"))
    loop.reopen_server()


def test_records_that_cannot_be_written_again_are_told(tmp_path):
    """Those of before the snapshot; the others stay."""
    loop = Loopback(small_settings("fedcef"), tmp_path).run(5)
    path = tmp_path / "server" / "rounds.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "{damaged\n", *lines[3:]]))
    loop.reopen_server()
    assert "has lost the records of 1 rounds" in loop.notes[-1]
    assert path.read_text() == "".join([*lines[:2], *lines[3:]])


def test_a_run_that_has_lost_all_its_records_can_be_finished(tmp_path):
    """The last one is of the round that the snapshot is of, and can be written again."""
    loop = Loopback(small_settings("fedcef"), tmp_path).run()
    path = tmp_path / "server" / "rounds.jsonl"
    last = path.read_text().splitlines(keepends=True)[-1]
    path.unlink()
    loop.reopen_server()
    assert path.read_text() == last
    assert loop.server.finish()["rounds"] == loop.settings.rounds


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


def test_what_cannot_run_leaves_no_folder(tmp_path):
    problem = without_data(small_settings("zhang").build_problem())
    with pytest.raises(ConfigError, match="zhang needs all 5 clients in every round; leave clients_per_round out"):
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


def test_of_two_servers_that_begin_in_one_folder_the_first_stays(tmp_path, monkeypatch):
    """The second has looked before the first began, and does not touch what the first has written."""
    settings, problem = small_settings("fedcef"), without_data(small_settings("fedcef").build_problem())
    first = []

    def needed(*asked):
        if not first:
            first.append("begins")
            first.append(Coordinator.new(settings, problem, tmp_path / "run"))
        return clients_needed(*asked)

    monkeypatch.setattr("fedcef.deployment.coordinator.clients_needed", needed)
    with pytest.raises(RunError, match="already holds a run"):
        Coordinator.new(settings, problem, tmp_path / "run")
    assert Coordinator.recover(tmp_path / "run", problem).run == first[1].run


def test_all_that_a_new_run_writes_goes_through_the_disk(tmp_path):
    """A kill at any step leaves no run, or a whole one."""
    settings, problem, ended = small_settings("fedcef"), without_data(small_settings("fedcef").build_problem()), []
    for step in range(100):
        disk = FaultyDisk()
        disk.arm("kill", step)
        try:
            Coordinator.new(settings, problem, tmp_path / str(step), disk=disk)
            break
        except Killed:
            ended.append((tmp_path / str(step) / "config.toml").exists())
        if ended[-1]:
            Coordinator.recover(tmp_path / str(step), problem)
        else:
            Coordinator.new(settings, problem, tmp_path / str(step))
    assert len(ended) > 12
    assert set(ended) == {False, True}


# two kinds of folders


def test_a_server_leaves_a_simulated_run_alone(tmp_path):
    settings = small_settings("fedcef", rounds=2)
    run(settings, RunFolder(tmp_path / "run"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(RunError, match=r"is the folder of a simulated run.*`fedcef run --resume .*run`"):
        Coordinator.recover(tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("lost", ["nothing", "run.json", "clients.jsonl"])
@pytest.mark.parametrize("rounds", [2, 9], ids=["unfinished", "finished"])
def test_the_simulator_leaves_a_server_s_folder_alone(tmp_path, lost, rounds):
    """Also where the file with its id is lost, and whether it is finished or not."""
    loop = Loopback(small_settings("fedcef"), tmp_path).run(rounds)
    if loop.server.finished:
        loop.server.finish()
    folder = tmp_path / "server"
    (folder / lost).unlink(missing_ok=True)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"is the folder of a deployment's server; .*`flwr run .*resume=.*server"):
        run(loop.settings, RunFolder(folder), resume=True)
    with pytest.raises(RunError, match=r"already holds a run; go on with it by `flwr run"):
        run(loop.settings, RunFolder(folder))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
