"""Local and server optimisers in a deployment: kept memory, schedules over all local steps, and everyone restarted."""

import pytest

from .loopback import Loopback
from .setting import equal, simulation, small_settings

ADAMW = {"name": "adamw", "memory": "client", "warmup": 4, "schedule": "cosine", "weight_decay": 0.1}
NESTEROV = {"name": "momentum", "nesterov": True, "memory": "client", "warmup": 3}
SIGNS = {"name": "topk", "ratio": 0.25, "values": "sign"}
WHOLE = {"compressor": {"name": "identity"}, "regularizer": {"name": "zero"}}
CASES = {
    "fedavg": {"algorithm": {"name": "fedavg"}, "local_update": ADAMW, "server_update": {"name": "yogi"}, **WHOLE},
    "scaffold": {"algorithm": {"name": "scaffold"}, "local_update": NESTEROV, **WHOLE},
    "fedda": {"algorithm": {"name": "fedda"}, "local_update": NESTEROV, **WHOLE},
    "fedmid": {"algorithm": {"name": "fedmid"}, "local_update": NESTEROV, "compressor": {"name": "identity"}},
    "diloco": {"algorithm": {"name": "diloco"}, "server_lr": 0.7, **WHOLE},
    "sparseloco": {"algorithm": {"name": "sparseloco"}, "compressor": SIGNS, "regularizer": {"name": "zero"}},
    "sparseloco, momentum": {
        "algorithm": {"name": "sparseloco"},
        "compressor": SIGNS,
        "regularizer": {"name": "zero"},
        "server_update": {"name": "momentum", "nesterov": True},
    },
    "demo": {"algorithm": {"name": "demo"}, "compressor": SIGNS, "regularizer": {"name": "zero"}},
    "fedcef, gradients": {"local_update": ADAMW, "algorithm": {"name": "fedcef"}},
    "fedcef, directions": {
        "algorithm": {"name": "fedcef", "control": "direction", "downlink": "lossy"},
        "local_update": {**ADAMW, "proximal": "decoupled"},
        "compressor": SIGNS,
        "down_compressor": SIGNS,
    },
    "data parallelism": {"algorithm": {"name": "data_parallel"}, "local_update": ADAMW, **WHOLE},
}


@pytest.mark.parametrize("some", [0, 3], ids=["all clients", "three of five"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_simulated_run(tmp_path, case, some):
    settings = small_settings(rounds=5, clients_per_round=some, **CASES[case])
    deployed, simulated = Loopback(settings, tmp_path), simulation(settings)
    while not deployed.server.finished:
        deployed.play()
        simulated.step()
        deployed.reopen_server()
        deployed.workers = [deployed.open_worker(client) for client in range(5)]
        assert equal(deployed.server.state.replica, simulated.replica)
        assert equal(deployed.server.state.server, simulated.server)
    counted = simulated.ledger.totals()
    assert {name: deployed.records[-1][name] for name in counted} == counted
