"""Who is who: runs, and the clients' numbers."""

import json

import pytest

from fedcef.core.errors import ConfigError, RunError
from fedcef.deployment import Coordinator, DeploymentSettings, Disk, Roster, RunId

from .faulty_disk import FaultyDisk, Killed
from .loopback import Loopback
from .setting import small_settings


@pytest.fixture
def opened(tmp_path):
    """Opens the list of clients as another process would."""
    return lambda disk=None, clients=3: Roster(tmp_path / "clients.jsonl", clients, disk or Disk())


def test_clients_and_their_numbers(opened):
    roster = opened()
    assert [roster.enroll("a"), roster.enroll("b", 2), roster.enroll("a")] == [0, 2, 0]
    again = opened()
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


def test_an_enrolment_is_one_synced_line_at_the_end(tmp_path, opened):
    """Whoever enrols does not make the server write all others again."""
    written = []

    class Counting(Disk):
        def write(self, file, data):
            written.append(len(data))
            super().write(file, data)

    roster = opened(Counting(), clients=50)
    for client in range(50):
        roster.enroll(f"site-{client}")
    assert max(written) < 20
    lines = (tmp_path / "clients.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [[f"site-{client}", client] for client in range(50)]


@pytest.mark.parametrize("fault", ["kill", "full"])
def test_trouble_at_any_step_of_an_enrolment(tmp_path, opened, fault):
    """The client is known or not, the others stay, and the next enrolment is not glued to half a line."""
    for enrolled in (0, 1):
        for step in range(4 if not enrolled else 2):
            (tmp_path / "clients.jsonl").unlink(missing_ok=True)
            disk = FaultyDisk()
            roster = opened(disk)
            for client in range(enrolled):
                roster.enroll(f"site-{client}")
            disk.arm(fault, step)
            with pytest.raises((Killed, RunError)):
                roster.enroll("late", 2)
            again = opened()
            assert again.number("late") in (None, 2)
            assert again.enroll("site-1", 1) == 1
            assert again.enroll("late", 2) == 2
            assert [opened().number(f"site-{client}") for client in range(enrolled)] == list(range(enrolled))


def test_a_list_of_an_earlier_version_is_read_and_added_to(tmp_path, opened):
    (tmp_path / "clients.json").write_text(json.dumps({"a": 2, "b": 0}, indent=2))
    assert (opened().number("a"), opened().identity(0)) == (2, "b")
    assert opened().enroll("c") == 1
    assert [opened().number(name) for name in "abc"] == [2, 0, 1]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("clients.jsonl", b'["a", 0]\n["b", \n["c", 2]\n', "line 2 names no client"),
        ("clients.jsonl", b'["a", 0]\n7\n', "line 2 names no client"),
        ("clients.jsonl", b'["a", 0]\n["b", 0]\n', "'b' cannot be client 0"),
        ("clients.jsonl", b'["a", 0]\n["a", 1]\n', "'a' has two numbers"),
        ("clients.jsonl", b'["a", 9]\n', "'a' cannot be client 9"),
        ("clients.jsonl", b"\xff\xfe\n", "line 1 names no client"),
        ("clients.json", b'{"a": 0, "b', "not a JSON object"),
        ("clients.json", b"[1, 2]", "not a JSON object"),
        ("clients.json", b'{"a": "0"}', "'a' cannot be client '0'"),
    ],
)
def test_a_damaged_list_is_one_sentence(tmp_path, opened, name, content, why):
    """Which file, and what to do."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match=f"{name} is damaged .*{why}.*put it back from a copy, or delete it"):
        opened()


def test_numbers_are_freed_and_given_to_others(opened):
    roster = opened()
    for name in ("a", "b", "c"):
        roster.enroll(name)
    assert (roster.free(1), roster.free(1)) == ("b", None)
    assert opened().everyone() == {0: "a", 2: "c"}
    roster.assign(0, "c")  # which was 2
    assert opened().everyone() == {0: "c"}
    assert opened().enroll("a", 2) == 2
    with pytest.raises(RunError, match="There is no client 3; this run has 0 to 2"):
        roster.assign(3, "a")


def test_keys_in_the_settings_have_their_numbers(tmp_path):
    """Whoever came before them; others do not get these, and keep what is left."""
    keys = DeploymentSettings(identity="key", keys=("key-0", "", "key-2"))
    loop = Loopback(small_settings("fedcef"), tmp_path)
    server = Coordinator(loop.server.state, keys)  # site-0 to site-4 are enrolled
    assert server.enroll("key-2", 2) == 2
    assert server.enroll("key-0") == 0
    assert server.state.roster.everyone() == {0: "key-0", 1: "site-1", 2: "key-2", 3: "site-3", 4: "site-4"}
    with pytest.raises(RunError, match=r"key-2 is client 2 by deployment.keys; its node says 1"):
        server.enroll("key-2", 1)
    with pytest.raises(RunError, match=r"asks to be client 2, which has another key by deployment.keys"):
        server.enroll("site-2", 2)
    assert server.enroll("site-1", 1) == 1


def test_keys_in_the_settings_are_checked():
    with pytest.raises(ConfigError, match=r"set deployment.identity = 'key' too"):
        small_settings("fedcef", deployment={"keys": ["key-0"]})
    with pytest.raises(ConfigError, match=r"deployment.keys has a key twice"):
        small_settings("fedcef", deployment={"identity": "key", "keys": ["key-0", "key-0"]})
