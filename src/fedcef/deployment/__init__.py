"""A run on real machines, without the network: what server and clients keep on disk, and the bytes between them.

A transport carries orders to clients (`Worker.handle`) and replies to the server (`Coordinator.receive`).  It may lose,
double, delay or damage them; see docs/reliability.md.

    coordinator.py      the server, round by round          worker.py           the client, order by order
    admission.py        which replies are taken             client_store.py     its state on its disk
    end_round.py        from replies to a down-message      client_problem.py   its part of the data
    server_state.py     what the server knows and keeps     private_noise.py    its own noise, for [privacy]
      round_log.py, accepted_replies.py, client_sums.py     three files of it
    messages.py         orders and replies as bytes         identity.py         runs, and the clients' numbers
    protocol.py         what both sides compute alike       checks.py           what both sides make sure of
    measures.py         what a server can say of its model
"""

from fedcef.core.disk import Disk, PrivateDisk
from fedcef.deployment.admission import Verdict
from fedcef.deployment.client_problem import one_client, without_data
from fedcef.deployment.client_store import ClientStore
from fedcef.deployment.coordinator import Coordinator
from fedcef.deployment.identity import Roster, RunId
from fedcef.deployment.worker import Worker
from fedcef.runs.deployment_settings import DeploymentSettings

__all__ = [
    "ClientStore",
    "Coordinator",
    "DeploymentSettings",
    "Disk",
    "PrivateDisk",
    "Roster",
    "RunId",
    "Verdict",
    "Worker",
    "one_client",
    "without_data",
]
