"""What a server remembers between rounds, momentum and sketches, outlives its process and is the simulator's."""

import pytest

from .loopback import Loopback
from .setting import equal, simulation, small_settings

WHOLE = {"compressor": {"name": "identity"}, "clients_per_round": 2, "server_lr": 0.1}
CASES = {
    "momentum": {**WHOLE, "algorithm": {"name": "fedavg"}, "server_update": {"name": "momentum", "nesterov": True}},
    "adam": {**WHOLE, "algorithm": {"name": "scaffold"}, "server_update": {"name": "adam", "floor": 0.01}},
    "yogi": {"algorithm": {"name": "qsparse"}, "clients_per_round": 2, "server_update": {"name": "yogi"}},
    "adagrad": {**WHOLE, "algorithm": {"name": "fedda"}, "server_update": {"name": "adagrad"}},
    "fedadam": {**WHOLE, "algorithm": {"name": "fedadam", "decay": 0.9}},
    "fetchsgd": {**WHOLE, "algorithm": {"name": "fetchsgd", "width": 0.2, "kept": 0.1}},
    "fedbuff": {**WHOLE, "algorithm": {"name": "fedbuff"}},
}


@pytest.mark.parametrize("case", CASES)
def test_a_server_that_is_killed_after_every_round_goes_on_as_the_simulator(tmp_path, case):
    settings = small_settings(**CASES[case])
    deployed, simulated = Loopback(settings, tmp_path), simulation(settings)
    for t in range(settings.rounds):
        deployed.play()
        simulated.step()
        deployed.reopen_server()
        assert equal(deployed.server.state.replica, simulated.replica), f"round {t}"
        assert equal(deployed.server.state.server, simulated.server), f"round {t}"
    assert bool(simulated.server) == (case != "fedbuff")
    if simulated.clients:
        assert equal(deployed.table(), simulated.clients)
