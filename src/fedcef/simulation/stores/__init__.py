"""Where clients' states are kept between rounds, and in what form.

| `store.name` | where rows lie |
|---|---|
| `table` | one table with a row for every client, on the device |
| `memory` | on the device, a row once its client has taken part |
| `host` | the same in the host's memory: a GPU holds the rows of the cohort alone |
| `disk` | in a file, which is also what a snapshot keeps |

`auto` is the table where it is small, and `memory` otherwise.  In a run folder all but the table are kept in a file
that only grows (`row_log.py`), so that a snapshot costs what has changed since the last one.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

import torch

from fedcef.algorithms.algorithm import State
from fedcef.core.round import POPULATION
from fedcef.core.training import StoreOptions
from fedcef.simulation.client_states import ClientStates, Table
from fedcef.simulation.stores.coded import Coded
from fedcef.simulation.stores.filed import Filed, Journalled
from fedcef.simulation.stores.row_codes import ROW_CODES
from fedcef.simulation.stores.row_log import RowLog
from fedcef.simulation.stores.rows import Rows
from fedcef.simulation.stores.slots import Slots
from fedcef.simulation.stores.touched import Touched

__all__ = ["Store", "Touched"]

_SMALL_TABLE = 256 << 20  # bytes


@dataclass(frozen=True)
class Store:
    """A store by its options: has the `start` of a `ClientStates`."""

    options: StoreOptions
    everyone: bool
    """Whether all clients take part in every round."""
    folder: Path | None = None
    """The run's own, if it has one."""

    def is_table(self, state: State, num_clients: int) -> bool:
        """Whether there is a row for every client from the start."""
        row = sum(vector.nbytes for vector in state.values())
        small = num_clients <= POPULATION and num_clients * row <= _SMALL_TABLE
        plain = self.options.code == "exact" and (self.everyone or small)
        return self.options.name == "table" or (self.options.name == "auto" and plain)

    def start(self, state: State, num_clients: int) -> ClientStates:
        """The states before the first round: every client has this one."""
        name, code = self.options.name, self.options.code
        if self.is_table(state, num_clients):
            return Table.start(state, num_clients)
        if name == "disk":
            return Touched(self.file(state, num_clients, self.options.limit))
        rows: Rows
        if code == "nonzeros":
            rows = Coded(state, num_clients, ROW_CODES[code]())
        else:
            dtype = torch.bfloat16 if code == "bfloat16" else None
            rows = Slots(state, num_clients, "cpu" if name == "host" else None, dtype)
        return Touched(Journalled(rows, RowLog(self.folder)) if self.folder and state else rows)

    def file(self, state: State, num_clients: int, limit: int = 0) -> Filed:
        """Rows in a file of the run's folder, or of a passing one."""
        log = RowLog(self.folder) if self.folder else _passing()
        return Filed(state, num_clients, log, ROW_CODES[self.options.code](), limit)


class _Owner:
    """What a passing folder lives as long as."""


def _passing() -> RowLog:
    """Files that go when the last of them is forgotten, or the process ends."""
    folder, owner = Path(tempfile.mkdtemp(prefix="fedcef-")), _Owner()
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return RowLog(folder, owner=owner)
