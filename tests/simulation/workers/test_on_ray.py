"""Runs on Ray: the same bits by two actors, also when one of them is lost."""

import pytest
import torch

ray = pytest.importorskip("ray")

from fedcef.algorithms import FedAvg  # noqa: E402
from fedcef.core.errors import ConfigError, ProblemError, RunError  # noqa: E402
from fedcef.core.training import Training  # noqa: E402
from fedcef.oracles.loop import ClientLoop  # noqa: E402
from fedcef.simulation.simulation import Simulation  # noqa: E402
from fedcef.simulation.workers import OnRay, Whole, workers_for  # noqa: E402
from fedcef.simulation.workers.on_ray import connected  # noqa: E402

from .members import METHODS, played, problem, simulation  # noqa: E402

pytestmark = [  # of Ray's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    connected(num_cpus=2)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def workers(cluster):
    return OnRay(2)


@pytest.mark.parametrize("name", METHODS)
def test_actors_give_what_this_process_gives(name, workers):
    chunk = METHODS[name].get("cohort_chunk", 0)
    mine = OnRay(2, chunk, workers._crew) if chunk else workers  # the same actors
    alone, by_actors = played(name, workers=Whole()), played(name, workers=mine)
    assert by_actors["totals"] == alone["totals"]
    assert by_actors["scalars"] == alone["scalars"]
    for part, state in alone["parts"].items():
        assert state.keys() == by_actors["parts"][part].keys()
        assert all(torch.equal(tensor, by_actors["parts"][part][key]) for key, tensor in state.items())


def test_an_actor_that_is_lost_is_started_again(workers):
    alone, on_ray = simulation("fedcef", workers=Whole()), simulation("fedcef", workers=workers)
    for round_ in range(3):
        if round_ == 1:
            ray.kill(workers._crew[0].actors[1], no_restart=False)
        alone.step()
        on_ray.step()
    assert torch.equal(alone.model(), on_ray.model())


def test_what_goes_wrong_is_one_sentence(workers):
    class Broken(FedAvg):
        def local(self, replica, client, oracle, key):
            raise {0.1: ProblemError, 0.2: KeyError}[self.local_lr]("This cannot be computed.")

    def step(workers, **options):
        Simulation(problem(), workers=workers, batch_size=4, oracle="loop", **options).step()

    with pytest.raises(ProblemError, match=r"^This cannot be computed\.$"):
        step(workers, algorithm=Broken(local_lr=0.1))
    with pytest.raises(RunError, match="An actor of Ray has failed with KeyError: 'This cannot"):
        step(workers, algorithm=Broken(local_lr=0.2))
    with pytest.raises(ConfigError, match="asks for 64 actors, one for each CPU, and Ray has 2"):
        Simulation(problem(), FedAvg(), workers=OnRay(64))  # before the first round, and before a folder is written

    class Mine(ClientLoop):
        pass

    with pytest.raises(ConfigError, match="leave `gradients` out"):
        step(OnRay(1), algorithm=FedAvg(), gradients=Mine(problem(), Training()))


def test_the_option_names_the_actors():
    assert workers_for(Training(workers="ray:3", cohort_chunk=4)) == OnRay(3, 4)
    assert workers_for(Training(workers="ray")) == OnRay(0)
    with pytest.raises(ConfigError, match="workers is 'distributed', but this process is alone"):
        workers_for(Training(workers="distributed"))
    with pytest.raises(ConfigError, match="it must be auto, local, distributed, ray, or ray and a number"):
        Training(workers="ray:none")
