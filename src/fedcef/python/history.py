"""What happened in a run: its records, the trained parameters, and ways to look at them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from fedcef.core.errors import ProblemError, RunError
from fedcef.problems.copying import copied
from fedcef.python import plot, views
from fedcef.runs.folder import RunFolder
from fedcef.runs.reader import RunReader

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Measures = dict[str, Any]
"""A round's number, the bytes so far, the time, and how good the point is."""


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """The records of a run, evaluated round by evaluated round, and the trained parameters.

    >>> history = run(problem, FedCEF(local_lr=0.1), rounds=100)
    >>> history["accuracy"][-1], history.bytes
    >>> history.plot("accuracy", against="bytes")
    """

    records: list[Measures]
    """One for each evaluated round, the start and the end among them."""
    parameters: dict[str, Tensor]
    """By name, as a `state_dict` has them."""
    template: nn.Module | None = field(default=None, repr=False)
    """A module that the parameters fit."""
    folder: Path | None = None
    """Where the run is on disk, if it is."""
    notes: tuple[str, ...] = ()
    """What was told on the way, and which files of the folder could not be read whole."""

    @classmethod
    def load(cls, folder: str | Path, template: nn.Module | None = None) -> History:
        """The history in a run folder, from Python or from the command line; parameters only once the run has ended."""
        path = RunFolder.open(Path(folder)).path
        run = RunReader(path)
        records = [record for record in run.records if "objective" in record]
        if not records:
            raise RunError(f"The run in {folder} has not been evaluated yet; wait for its first round, or resume it.")
        notes = tuple(str(note.get("note", "")) for note in run.notes)
        return cls(records, run.model(), template, path, (*notes, *run.damage))

    @property
    def measures(self) -> list[str]:
        """The names of what was recorded."""
        return list(dict.fromkeys(name for record in self.records for name in record))

    @property
    def last(self) -> Measures:
        """The record of the last round."""
        return self.records[-1]

    @property
    def bytes(self) -> int:
        """All that was sent, up and down, in the wire format."""
        return int(self.last["wire_up_bytes"] + self.last["wire_down_bytes"])

    @property
    def model(self) -> nn.Module:
        """The trained model: a copy of the problem's module with the trained parameters."""
        if self.template is None:
            raise ProblemError(
                "This history knows its parameters but not their module; load them into yours: "
                "module.load_state_dict(history.parameters)."
            )
        model = copied(self.template)
        model.load_state_dict(self.parameters)
        return model

    def __getitem__(self, measure: str) -> list[float]:
        """One measure over the evaluated rounds, e.g. history["accuracy"]; NaN where it was not recorded."""
        if measure not in self.measures:
            raise KeyError(f"{measure!r} was not recorded; there are {', '.join(self.measures)}.")
        return [record.get(measure, math.nan) for record in self.records]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Measures]:
        return iter(self.records)

    def frame(self) -> DataFrame:
        """The records as a pandas table, one row per evaluated round, which is its index."""
        return views.frame(self.records)

    def plot(self, *measures: str, against: str = "round") -> Figure:
        """Draw measures against "round", "bytes" or any other recorded column; returns matplotlib's figure.

        Without names: accuracy and test loss where there are such, the objective, stationarity and density.
        """
        return plot.plot(self.records, measures, against)

    def __repr__(self) -> str:
        return views.text(self.records)

    def _repr_html_(self) -> str:
        return views.html(self.records)
