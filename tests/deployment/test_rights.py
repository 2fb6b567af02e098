"""What a server and its clients write is their owner's alone, whatever the umask: it tells of clients' data."""

import os
import stat

import pytest

from fedcef.core.disk import Disk
from fedcef.deployment import ClientStore, Coordinator, Worker, one_client, without_data

from .setting import small_settings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="rights as POSIX has them")


@pytest.fixture(autouse=True)
def careless():
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(folder):
    """Of a folder and everything in it."""
    paths = [folder, *folder.rglob("*")]
    return {oct(stat.S_IMODE(path.stat().st_mode)) + (" folder" if path.is_dir() else "") for path in paths}


@pytest.mark.parametrize("privacy", [None, {"clip": 1.0, "noise": 1.0}], ids=["plain", "private"])
def test_files_of_a_deployment_are_their_owner_s(tmp_path, privacy):
    if privacy:
        pytest.importorskip("dp_accounting")
    settings = small_settings("fedcef", rounds=4, num_clients=2, snapshot_every=2, privacy=privacy)
    problem = settings.build_problem()
    server = Coordinator.new(settings, without_data(problem), tmp_path / "made" / "server")
    for client in range(2):
        server.enroll(f"site-{client}", client)
    server.receive("nobody", b"")
    while not server.finished:
        for client, order in server.start_round(0.0).items():
            store = ClientStore(tmp_path / "states" / f"client-{client}", client)
            reply = Worker(settings, one_client(problem, client), store).handle(order)
            assert server.receive(f"site-{client}", reply).accepted
        server.close_round(0.0)
    server.finish()
    names = {path.name for path in (tmp_path / "made" / "server").rglob("*")}
    assert {"000000.sum", "refused.jsonl", "rounds.jsonl", "run.json", "model.safetensors"} <= names
    assert rights(tmp_path / "made" / "server") == {"0o700 folder", "0o600"}
    assert rights(tmp_path / "states" / "client-0") == {"0o700 folder", "0o600"}
    assert bool(privacy) == any((tmp_path / "states" / "client-0").glob("*.secret"))


def test_other_files_are_as_the_umask_says(tmp_path):
    Disk().replace(tmp_path / "folder" / "file", b"")
    Disk().add(tmp_path / "folder" / "other", b"")
    assert rights(tmp_path / "folder") == {"0o755 folder", "0o644"}
