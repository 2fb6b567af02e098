"""Who does the work of a round's clients, and how many of them at a time.

| | |
|---|---|
| `whole.py` | all of the cohort at once, in this process |
| `chunked.py` | some of it at a time, for cohorts that are larger than memory |
| `distributed.py` | split over processes, on GPUs or machines of their own, by torch.distributed |
| `on_ray.py` | split over actors of Ray, which may come and go |

All give the same messages and states, to the last bit (but see `chunked.py`).
"""

from __future__ import annotations

from fedcef.core.errors import ConfigError
from fedcef.core.training import Training
from fedcef.simulation.workers.chunked import Chunked
from fedcef.simulation.workers.distributed import Distributed
from fedcef.simulation.workers.on_ray import OnRay, installed_ray
from fedcef.simulation.workers.team import Team, team, together
from fedcef.simulation.workers.whole import Whole
from fedcef.simulation.workers.workers import Proposed, Workers, all_finite, commit, only

__all__ = [
    "Chunked",
    "Distributed",
    "OnRay",
    "Proposed",
    "Team",
    "Whole",
    "Workers",
    "all_finite",
    "commit",
    "only",
    "team",
    "together",
    "workers_for",
]


def workers_for(training: Training, given: Workers | None = None, *, chooses: bool = False) -> Workers:
    """Those that were given, or that the options name; `chooses` says whether the run chooses its compressors."""
    workers = given if given is not None else _named(training)
    if chooses and not isinstance(workers, Whole):
        raise ConfigError(
            "compressor auto looks at all vectors of a cohort together; name a compressor, or take one process and "
            "cohort_chunk = 0."
        )
    if training.network is not None and training.network.mode == "async" and not isinstance(workers, Whole):
        raise ConfigError(
            "In the asynchronous mode there are no cohorts to split; leave cohort_chunk and workers out and start it "
            "without torchrun, or take network.mode = 'rounds'."
        )
    return workers


def _named(training: Training) -> Workers:
    name, _, count = training.workers.partition(":")
    processes = team()
    if processes is not None:
        if name not in ("auto", "distributed"):
            raise ConfigError(
                f"workers is {training.workers!r}, but there are {processes.size} processes, which would all do the "
                "same; take workers = 'auto', or start one process."
            )
        return Distributed(processes, training.cohort_chunk)
    if name == "distributed":
        raise ConfigError(
            "workers is 'distributed', but this process is alone; start several by: torchrun --nproc-per-node 4 -m "
            "fedcef run …"
        )
    if name == "ray":
        installed_ray()  # a run that cannot begin leaves nothing behind
        return OnRay(int(count or 0), training.cohort_chunk)
    return Chunked(training.cohort_chunk) if training.cohort_chunk else Whole()
