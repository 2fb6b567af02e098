"""Everything that a deployment keeps goes through the disk that it was given, and takes its name whole.

Otherwise the tests that kill, or fill, an injected disk at every step would pass by what is written past it.
"""

import ast
import os
from pathlib import Path

import pytest

import fedcef
from fedcef.core.disk import Disk
from fedcef.deployment import DeploymentSettings, without_data
from fedcef.deployment.changed_settings import accept_changes
from fedcef.deployment.going_back import go_back
from fedcef.deployment.messages import decode_reply
from fedcef.secure.server import ServerSession
from fedcef.secure.store import SessionStore

from . import loopback
from .loopback import Loopback
from .setting import small_settings
from .watched_disk import WatchedDisk, watched

SOURCE = Path(fedcef.__file__).parent
GROWING = {"round_log.bin", "accepted.bin", "clients.jsonl", "rounds.jsonl", "refused.jsonl", "notes.jsonl"}
"""Files of entries, of which an interrupted write leaves the last one torn, and readers know that."""
PRIVATE = {"compressor": {"name": "identity"}, "privacy": {"clip": 0.5, "noise": 0.02}}


def whole_run(folder, settings):
    """A run with everything in it that is written: refused and lost things, restarts, damage, an operator, an end."""
    loop = Loopback(settings, folder).run(2)
    loop.server.receive("a stranger", b"no reply")
    loop.server.state.remember("It ends.")
    loop.reopen_server()
    for path in loop.folder(0).glob("*.state"):
        path.unlink()
    loop.workers = [loop.open_worker(client) for client in range(settings.num_clients)]
    loop.run(4)
    for lost in ("rounds.jsonl", "round_log.bin"):  # what can be written again is
        loop.server_disk.replace(folder / "server" / lost, b"")
    loop.reopen_server()
    roster = loop.server.state.roster
    roster.assign(1, "another")
    roster.assign(1, loop.name(1))
    loop.run()
    loop.server.finish()
    data, other = without_data(loop.problem), {"deployment": DeploymentSettings(deadline_s=7)}
    assert not accept_changes(folder / "server", settings, settings.model_copy(update=other), data, loop.server_disk)
    if not settings.privacy:  # a longer run, and one that goes back, both of which privacy forbids
        longer = settings.model_copy(update={"rounds": settings.rounds + 1})
        assert accept_changes(folder / "server", settings, longer, data, loop.server_disk)
        assert go_back(folder / "server", loop.server_disk) == settings.rounds
    return loop


@pytest.fixture(scope="module", params=[{}, PRIVATE], ids=["plain", "private"])
def watch(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch, watched(folder) as watch:
        patch.setattr(loopback, "FaultyDisk", WatchedDisk)
        whole_run(folder, small_settings("fedcef", rounds=6, num_clients=3, **request.param))
    return watch


def test_nothing_is_written_past_the_disk(watch):
    assert watch.past <= {"lock"}  # which holds nothing
    names = {name.removesuffix(".part") for name in watch.by}
    assert {"snapshot.bin", "run.json", "config.toml", "summary.json", "model.safetensors"} <= names
    assert {"round_log.bin", "accepted.bin", "clients.jsonl", "rounds.jsonl", "refused.jsonl", "notes.jsonl"} <= names
    assert any(name.endswith(".sum") for name in names)
    assert any(name.endswith(".state") for name in names)


def test_whatever_is_replaced_is_written_beside_and_renamed(watch):
    for name, methods in watch.by.items():
        if name.endswith(".part"):
            assert methods <= {"replace", "replace_by"}, name
        elif methods & {"append", "add"}:
            assert name in GROWING, name
        else:  # only the rename and a sync have touched it by its name
            assert f"{name}.part" in watch.by, name


def test_what_goes_past_the_disk_is_noticed(tmp_path):
    with watched(tmp_path) as watch:
        WatchedDisk().replace(tmp_path / "kept", b"")
        Disk().replace(tmp_path / "by another disk", b"")
        (tmp_path / "by no disk").write_bytes(b"")
        os.close(os.open(tmp_path / "by a descriptor", os.O_WRONLY | os.O_CREAT))
        (tmp_path / "kept").read_bytes()
    assert watch.past == {"by another disk", "by another disk.part", "by no disk", "by a descriptor"}
    assert watch.by.keys() == {"kept", "kept.part"}


def test_a_client_counts_its_noise_on_the_disk_of_its_states(tmp_path):
    loop = Loopback(small_settings("fedcef", rounds=3, num_clients=3, **PRIVATE), tmp_path)
    orders = loop.server.start_round(loop.now)
    loop.disks[0].arm("full")
    reply = decode_reply(loop.workers[0].handle(orders[0]), 10**6)
    assert "No space left on device" in reply.reason
    assert ".secret" in reply.reason


def test_a_client_keeps_its_session_of_secure_aggregation_by_its_disk(tmp_path):
    pytest.importorskip("cryptography", reason="Flower is not installed: pip install 'fedcef[flower]'")
    request = ServerSession(bytes(16), 0, [0, 1]).begin()[0]
    with watched(tmp_path) as watch:
        SessionStore(tmp_path, 0, WatchedDisk()).handle(request)
    assert watch.past == set()
    assert watch.by == {"secure.session": {"replace"}, "secure.session.part": {"replace"}}


# and in the source, for what no test runs


WRITERS = {"write_text", "write_bytes", "savez", "save_file", "touch", "symlink_to", "hardlink_to"}
ALLOWED = {
    "runs/folder.py": 2,  # a simulation's log, which need not be durable: resuming only compares with it
}
"""How many calls of a file write past a disk, for a reason."""


def writing_calls(tree):
    """Calls that open a file for writing, or write or make one, other than by a disk."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        modes = [arg.value for arg in [*node.args, *(k.value for k in node.keywords)] if isinstance(arg, ast.Constant)]
        opens = name == "open" and any(
            isinstance(mode, str) and set(mode) & set("wax+") and len(mode) < 4 for mode in modes
        )
        saves = (owner, name) in {
            ("json", "dump"),
            ("torch", "save"),
            ("np", "save"),
            ("os", "replace"),
            ("os", "rename"),
        }
        if opens or saves or name in WRITERS or (owner == "shutil" and name != "disk_usage"):
            yield f"{node.lineno} {ast.unparse(node.func)}"


@pytest.mark.parametrize(
    "file",
    [
        str(p.relative_to(SOURCE))
        for part in ("deployment", "runs", "secure")
        for p in sorted((SOURCE / part).rglob("*.py"))
    ],
)
def test_no_file_is_opened_for_writing_but_by_a_disk(file):
    found = list(writing_calls(ast.parse((SOURCE / file).read_text("utf-8"))))
    assert len(found) <= ALLOWED.get(file, 0), found


@pytest.mark.parametrize("file", sorted(p.name for p in (SOURCE / "deployment").glob("*.py")))
def test_no_disk_is_made_but_where_none_was_handed_over(file):
    """`disk or Disk()`: a disk that is simply made is one that no test can replace."""
    tree = ast.parse((SOURCE / "deployment" / file).read_text("utf-8"))
    defaults = {id(value) for node in ast.walk(tree) if isinstance(node, ast.BoolOp) for value in node.values[1:]}
    made = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Disk") and id(node) not in defaults
    ]
    assert len(made) <= MADE.get(file, 0), made


MADE = {"roster.py": 1}
"""An operator's command, which has no disk to hand over."""
