"""A run on real machines, without the network: what server and clients keep on disk, and the bytes between them.

A transport carries orders to clients (`Worker.handle`) and replies to the server (`Coordinator.receive`).  It may lose,
double, delay or damage them; see docs/reliability.md.
"""

from fedcef.core.disk import Disk
from fedcef.deployment.admission import Verdict
from fedcef.deployment.client_problem import one_client, without_data
from fedcef.deployment.client_store import Store
from fedcef.deployment.coordinator import Coordinator
from fedcef.deployment.identity import Roster, RunId
from fedcef.deployment.worker import Worker
from fedcef.runs.deployment_settings import Terms

__all__ = [
    "Coordinator",
    "Disk",
    "Roster",
    "RunId",
    "Store",
    "Terms",
    "Verdict",
    "Worker",
    "one_client",
    "without_data",
]
