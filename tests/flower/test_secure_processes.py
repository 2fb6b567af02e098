"""Secure aggregation in real processes, with signed keys, is the simulated run, bit for bit.

`make test-flower` runs this.
"""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from safetensors.torch import load_file

from deployment.setting import equal
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run

from .deployment import EXAMPLE, Deployment

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found and ended by /proc, which is Linux's"),
]

CLIENTS, ROUNDS, RUN_S = 3, 2, 900.0
CHANGES = [
    *(f"num_clients={CLIENTS}", f"rounds={ROUNDS}", "algorithm.name=fedpaq", "secure.range=0.25"),
    *("compressor.name=randk", "compressor.ratio=0.5", "compressor.unbiased=true"),
]
DEPLOYMENT = [f"deployment.min_clients={CLIENTS}", "deployment.deadline_s=300", "deployment.identity=key"]


def test_three_clients_with_keys_over_tls(tmp_path):
    with Deployment(tmp_path / "deployed") as lab:
        lab.credentials(nodes=CLIENTS)
        lab.superlink()
        peers = lab.secrets / "peers.pub"
        peers.write_text("".join((lab.secrets / f"node-{node}.pub").read_text() for node in range(CLIENTS)))
        for node in range(CLIENTS):
            lab.register(node)
            lab.supernode(node, config=f"secure-key='{lab.secrets}/node-{node}.key' secure-peers='{peers}'")
        ran = lab.run(*CHANGES, *DEPLOYMENT, out=str(tmp_path / "run"))
        ran.wait(RUN_S)
        assert "Finished" in lab.log("run"), lab.log("run")
    deployed, simulated = RunFolder.open(tmp_path / "run"), RunFolder.new(tmp_path / "simulated")
    run(load_settings(str(EXAMPLE / "experiment.toml"), CHANGES), simulated)
    for real, virtual in zip(deployed.records(), simulated.records(), strict=True):
        assert real["wire_up_bytes"] == virtual["wire_up_bytes"]
    assert equal(load_file(deployed.path / "model.safetensors"), load_file(simulated.path / "model.safetensors"))
    assert not (deployed.path / "refused.jsonl").exists()
