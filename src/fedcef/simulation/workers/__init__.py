"""Who does the work of a round's clients, and how many of them at a time.

| | |
|---|---|
| `whole.py` | all of the cohort at once, in this process |
| `chunked.py` | some of it at a time, for cohorts that are larger than memory |
"""

from __future__ import annotations

from fedcef.simulation.workers.chunked import Chunked
from fedcef.simulation.workers.whole import Whole
from fedcef.simulation.workers.workers import Proposed, Workers, all_finite, commit

__all__ = ["Chunked", "Proposed", "Whole", "Workers", "all_finite", "commit"]
