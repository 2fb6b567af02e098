"""A secure deployment in real processes is the simulated run, bit for bit.  `make test-flower` runs these."""

import os
import shutil
import ssl
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from safetensors.torch import load_file

from deployment.setting import equal, simulation
from fedcef.deployment import Coordinator
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run

from .deployment import EXAMPLE, PATIENCE_S, Deployment

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found and ended by /proc, which is Linux's"),
]

CLIENTS, ROUNDS = 4, 10
RUN_S = 900.0
"""More than a run takes on a busy machine."""
CHANGES = [f"num_clients={CLIENTS}", f"rounds={ROUNDS}", "eval.every=5", "snapshot_every=4"]
DEPLOYMENT = [f"deployment.min_clients={CLIENTS}", "deployment.deadline_s=500", "deployment.identity=key"]
COUNTS = ("wire_up_bytes", "wire_down_bytes", "paper_up_bytes", "paper_down_bytes")


def test_four_clients_with_keys_over_tls(tmp_path):
    """Ten rounds.  Meanwhile a node that is not registered, and one that claims another's number, are kept out."""
    stranger, pretender = CLIENTS, CLIENTS + 1
    with Deployment(tmp_path / "deployed") as lab:
        lab.credentials(nodes=CLIENTS + 2)
        lab.superlink()
        for node in [*range(CLIENTS), pretender]:
            lab.register(node)
        for client in range(CLIENTS):
            lab.supernode(client)
        running = lab.run(*CHANGES, *DEPLOYMENT, out=str(tmp_path / "run"))
        lab.wait_for("the first round", lambda: rounds(tmp_path / "run") > 0, running, "run")
        refused = lab.supernode(0, key=stranger, name="stranger")
        lab.supernode(0, key=pretender, name="pretender")
        lab.wait_for("the pretender to be refused", lambda: "is refused" in lab.log("run"), running, "run")
        assert refused.wait(PATIENCE_S) != 0
        assert "Failed to activate SuperNode" in lab.log("stranger")
        running.wait(RUN_S)
        assert "Finished" in lab.log("run")
    assert not lab.processes()

    settings = load_settings(str(EXAMPLE / "experiment.toml"), CHANGES)
    deployed, simulated = RunFolder.open(tmp_path / "run"), RunFolder.new(tmp_path / "simulated")
    run(settings, simulated)
    for real, virtual in zip(deployed.records(), simulated.records(), strict=True):
        assert {name: real[name] for name in COUNTS} == {name: virtual[name] for name in COUNTS}
        assert real.get("accuracy") == virtual.get("accuracy")
    assert deployed.records()[-1]["accuracy"] > 0.8
    assert equal(load_file(deployed.path / "model.safetensors"), load_file(simulated.path / "model.safetensors"))

    whole = simulation(settings)
    for _ in range(ROUNDS):
        whole.step()
    assert equal(Coordinator.recover(deployed.path).state.replica, whole.replica)
    assert not (deployed.path / "refused.jsonl").exists()


def test_nothing_but_the_fleet_passes_the_gate(tmp_path):
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    with Deployment(tmp_path / "deployed") as lab:
        lab.credentials(nodes=1)
        lab.superlink()
        gate = lab.gate(nginx)
        trust = ssl.create_default_context(cafile=lab.secrets / "ca.crt")
        assert status(f"https://{lab.address}/health", trust) == 200
        for path in ("health", "v1/control/start-run", "v1/fleet/../control/start-run", "v1/runtime/acquire-task"):
            assert status(f"https://{gate}/{path}", trust) == 403
        lab.register(0)
        lab.supernode(0, address=gate)
        ran = lab.run("num_clients=1", "rounds=1", *DEPLOYMENT, "deployment.min_clients=1", out=str(tmp_path / "run"))
        ran.wait(RUN_S)
        assert rounds(tmp_path / "run") == 1
        assert "Finished" in lab.log("run")


def rounds(path):
    """How many rounds of a run are over."""
    return len(RunFolder.open(path).records()) - 1 if (path / "config.toml").exists() else 0  # written last


def status(address, trust):
    """The answer's status; the path is sent as it is."""
    parts = urlsplit(address)
    connection = HTTPSConnection(parts.netloc, context=trust, timeout=60)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status
    finally:
        connection.close()
