"""A deployed run over the in-process grid, beside the simulator's."""

from deployment.setting import simulation
from fedcef.deployment import Coordinator, DeploymentSettings, without_data
from fedcef.flower.client_app import app as client_app
from fedcef.flower.round_loop import RoundLoop

from .in_process import InProcessGrid


class Deployed:
    """Server, grid and nodes of a run."""

    def __init__(self, settings, path, *, deployment=None, clients=None, resume=False):
        self.settings, self.path = settings, path
        toml = path / "experiment.toml"
        toml.write_text(settings.to_toml())
        run_config = {"experiment": str(toml), "set": ""}
        count = settings.num_clients if clients is None else clients
        self.grid = InProcessGrid(client_app, run_config, state=path / "states", clients=count)
        self.deployment = deployment or DeploymentSettings(deadline_s=50)
        self.told: list[str] = []
        self.records: list = []
        self.replicas: list = []
        self.server = self.recovered() if resume else self.begun()

    def begun(self):
        problem = without_data(self.settings.build_problem())
        return Coordinator.new(
            self.settings, problem, self.path / "server", deployment=self.deployment, tell=self.told.append
        )

    def recovered(self):
        problem = without_data(self.settings.build_problem())
        return Coordinator.recover(self.path / "server", problem, deployment=self.deployment, tell=self.told.append)

    def loop(self, stopped=lambda: False):
        grid = self.grid
        return RoundLoop(
            grid,
            self.server,
            watch=self._watch,
            tell=self.told.append,
            stopped=stopped,
            clock=grid.clock,
            sleep=grid.sleep,
        )

    def run(self):
        self.summary = self.loop().run()
        return self

    def _watch(self, record):
        self.records.append(record)
        self.replicas.append({name: vector.clone() for name, vector in self.server.state.replica.items()})


def reference(settings):
    """The simulated run's last state."""
    simulated = simulation(settings)
    for _ in range(settings.rounds):
        simulated.step()
    return simulated
