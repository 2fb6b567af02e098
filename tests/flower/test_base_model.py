"""A part of a model is trained over Flower: each side builds the model by itself, and the run is the simulated one."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from deployment.setting import equal, simulation
from deployment.test_base_model import settings_of
from fedcef.flower.client_app import app as client_app
from fedcef.flower.run_server import run_server
from fedcef.runs.folder import RunFolder
from fedcef.simulation.evaluation import Evaluator

from .in_process import InProcessGrid


@pytest.mark.parametrize("buffers", ["constant", "frozen", "local", "mean"])
def test_it_is_the_simulated_run(tmp_path, buffers):
    settings = settings_of(buffers=buffers)
    (tmp_path / "mine.toml").write_text(settings.to_toml())
    config = {
        "experiment": str(tmp_path / "mine.toml"),
        "set": "deployment.deadline_s=20",
        "out": str(tmp_path / "run"),
    }
    grid = InProcessGrid(client_app, config, state=tmp_path / "states")
    summary = run_server(grid, grid.run_config)
    simulated = simulation(settings)
    for _ in range(settings.rounds):
        simulated.step()
    expected = simulated.problem.state_dict(simulated.model(), statistics=simulated.statistics())
    assert equal(RunFolder.open(tmp_path / "run").read_model(), expected)
    assert {"0.weight"} < expected.keys() - set(simulated.problem.layout.names)
    measured = Evaluator(settings.build_problem(), simulated.algorithm.step)(simulated.model(), simulated.statistics())
    assert summary["accuracy"] == measured["accuracy"]
