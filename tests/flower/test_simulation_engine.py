"""Flower's own simulation engine gives the simulator's bits."""

import json
from copy import copy

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from safetensors.torch import load_file

from deployment.setting import equal, simulation, small_settings
from fedcef.flower.run_server import run_server
from fedcef.wire.checkpoint import read_checkpoint

from .test_parity import DIGITS, SOME


@pytest.mark.flower
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_simulator_s_bits(tmp_path, monkeypatch):
    """Several methods, one after the other; clients are told which by a file."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")
    from flwr.simulation import run_simulation

    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    all_settings = {method: small_settings(method, rounds=4, **DIGITS) for method in SOME}
    run_configs = []
    for method, settings in all_settings.items():
        folder = tmp_path / method
        folder.mkdir()
        (folder / "mine.toml").write_text(settings.to_toml())
        paths = {"experiment": folder / "mine.toml", "out": folder / "run", "state-dir": folder / "states"}
        run_configs.append({name: str(path) for name, path in paths.items()})
    server, clients = _apps(run_configs, tmp_path / "now.json")
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server_app=server, client_app=clients, num_supernodes=5, backend_config=resources)
    for method, settings in all_settings.items():
        run, simulated = tmp_path / method / "run", simulated_to_the_end(settings)
        model = load_file(run / "model.safetensors")
        assert equal(model, dict(settings.build_problem().layout.unflatten(simulated.model()))), method
        _, states = read_checkpoint(run / "snapshot.bin")
        replica = {f"replica/{name}": vector for name, vector in simulated.replica.items()}
        assert equal({name: states[name] for name in replica}, replica), method
        last = json.loads((run / "rounds.jsonl").read_text().splitlines()[-1])
        assert {name: last[name] for name in simulated.ledger.totals()} == simulated.ledger.totals(), method


def _apps(run_configs, now):
    """The apps with run configs, which `run_simulation` does not take; functions that Ray carries by value."""
    server, clients = ServerApp(), ClientApp()

    @server.main()
    def main(grid, context):
        for run_config in run_configs:
            now.write_text(json.dumps(run_config))
            run_server(grid, run_config)

    def with_config(handler):
        def called(message, context):
            here = copy(context)  # Flower's own may not be changed
            here.run_config = json.loads(now.read_text())
            return handler(message, here)

        return called

    def who(message, context):
        from fedcef.flower import client_app

        return client_app.who(message, context)

    def train(message, context):
        from fedcef.flower import client_app

        return client_app.train(message, context)

    clients.query()(with_config(who))
    clients.train()(with_config(train))
    return server, clients


def simulated_to_the_end(settings):
    simulated = simulation(settings)
    for _ in range(settings.rounds):
        simulated.step()
    return simulated
