"""A server that was put back from an older copy: its clients have seen rounds that it has not, and refuse to go back.

They are right to: an order of an old round that comes late must not undo what came after.  If the copy is all that is
left, an operator says so, by giving the run another id.  Under it clients begin where the server is.  One whose last
message the server knows goes on with its state; the others begin afresh, and the server takes out of its sums what they
had sent (docs/reliability.md).
"""

from __future__ import annotations

import json
from pathlib import Path

from fedcef.core.disk import Disk, PrivateDisk
from fedcef.core.errors import ConfigError, RunError
from fedcef.deployment.client_problem import without_data
from fedcef.deployment.coordinator import Coordinator
from fedcef.deployment.identity import RunId, read_run_id
from fedcef.deployment.protocol import Protocol
from fedcef.deployment.recovery import LostRounds
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.kinds import refuse_simulated


def go_back(path: Path, disk: Disk | None = None) -> int:
    """Let a run go on from what its server's folder holds, whatever clients have seen; returns its round."""
    refuse_simulated(path)
    folder, disk = RunFolder.open(path), disk or PrivateDisk()
    settings = load_settings(str(folder.config))
    name = settings.algorithm["name"]
    if settings.privacy:
        raise ConfigError(
            f"The run in {path} is private, and clients count what they have sent by its id, which going back would "
            "change; begin a new run."
        )
    problem = without_data(settings.build_problem(()))
    protocol = Protocol(settings, problem)
    if protocol.adds_up is None:
        raise RunError(f"{name} cannot do without the states that its clients would lose; begin a new run.")
    with folder.locked():
        try:
            server = Coordinator.recover(path, problem, disk=disk)
        except LostRounds as lost:
            kept = [record for record in folder.records() if record["round"] <= lost.end]
            disk.replace(folder.rounds, "".join(json.dumps(record) + "\n" for record in kept).encode())
            server = Coordinator.recover(path, problem, disk=disk)
        before = read_run_id(path / "run.json")
        again = RunId(before.settings, RunId.new(settings, protocol.base).nonce)
        folder.summary.unlink(missing_ok=True)
        disk.replace(path / "run.json", json.dumps({"run": str(again), "before": str(before)}).encode())
    return server.round
