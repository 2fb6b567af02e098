"""A deployed run over the in-process grid, beside the simulator's."""

from fedcef.deployment import Coordinator, Terms, without_data
from fedcef.flower.client_app import app as client_app
from fedcef.flower.round_loop import Drive

from .in_process import InProcessGrid


class Deployed:
    """Server, grid and nodes of a run."""

    def __init__(self, config, path, *, terms=None, clients=None, resume=False):
        self.config, self.path = config, path
        toml = path / "experiment.toml"
        toml.write_text(config.to_toml())
        run_config = {"experiment": str(toml), "set": ""}
        count = config.num_clients if clients is None else clients
        self.grid = InProcessGrid(client_app, run_config, state=path / "states", clients=count)
        self.terms = terms or Terms(deadline_s=50)
        self.told: list[str] = []
        self.records: list = []
        self.replicas: list = []
        self.server = self.recovered() if resume else self.begun()

    def begun(self):
        problem = without_data(self.config.build_problem())
        return Coordinator.new(self.config, problem, self.path / "server", terms=self.terms, watch=self.told.append)

    def recovered(self):
        problem = without_data(self.config.build_problem())
        return Coordinator.recover(self.path / "server", problem, terms=self.terms, watch=self.told.append)

    def drive(self, stopped=lambda: False):
        grid = self.grid
        return Drive(
            grid,
            self.server,
            watch=self._watch,
            tell=self.told.append,
            stopped=stopped,
            clock=grid.clock,
            sleep=grid.sleep,
        )

    def run(self):
        self.summary = self.drive().to_the_end()
        return self

    def _watch(self, record):
        self.records.append(record)
        self.replicas.append({name: vector.clone() for name, vector in self.server.books.replica.items()})
