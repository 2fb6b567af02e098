"""Who does the work of a round's clients, and how many of them at a time.

| | |
|---|---|
| `whole.py` | all of the cohort at once, in this process |
| `chunked.py` | some of it at a time, for cohorts that are larger than memory |
"""

from __future__ import annotations

from fedcef.core.errors import ConfigError
from fedcef.core.training import Training
from fedcef.simulation.workers.chunked import Chunked
from fedcef.simulation.workers.whole import Whole
from fedcef.simulation.workers.workers import Proposed, Workers, all_finite, commit

__all__ = ["Chunked", "Proposed", "Whole", "Workers", "all_finite", "commit", "workers_for"]


def workers_for(training: Training, given: Workers | None = None, *, chooses: bool = False) -> Workers:
    """Those that were given, or that the options name; `chooses` says whether the run chooses its compressors."""
    workers = given if given is not None else _named(training)
    if chooses and not isinstance(workers, Whole):
        raise ConfigError(
            "compressor auto looks at all vectors of a cohort together; name a compressor, or take one process and "
            "cohort_chunk = 0."
        )
    if training.network is not None and not isinstance(workers, Whole):
        raise ConfigError("A simulated network computes its cohorts whole, in one process; take cohort_chunk = 0.")
    return workers


def _named(training: Training) -> Workers:
    return Chunked(training.cohort_chunk) if training.cohort_chunk else Whole()
