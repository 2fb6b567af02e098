"""Samples in the types that a model and its loss take; what is changed is said once.

Floating-point numbers become the model's, and those that the loss takes for classes alone become int64.  Whole numbers
stay as they are where model and loss take them, and otherwise become int64 or floating-point numbers, as do those of
which a model predicts one for each and which are more than two classes: counts, say.  Class numbers that are not
0, 1, 2, … are numbered anew where the loss cannot take them and there are as many as the model has outputs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedcef.core.errors import DataNote
from fedcef.problems.client_data import Samples
from fedcef.problems.copying import copied
from fedcef.problems.labels import Labels, outputs_of

if TYPE_CHECKING:
    from fedcef.problems.problem import Problem


class Cast:
    """Changes samples into the types that were found for the first ones."""

    def __init__(
        self, inputs: torch.dtype, targets: torch.dtype, labels: Labels | None = None, rounds: bool = False
    ) -> None:
        """`labels` are class numbers that are numbered anew, if any are; with `rounds` 1.0 may become 1."""
        self._inputs, self._targets, self.labels, self._rounds = inputs, targets, labels, rounds
        self.notes: list[str] = []
        """What was changed so far, a sentence for each kind of change."""

    def __call__(self, samples: Samples, whose: str, rounds: bool = False) -> Samples:
        """The samples in these types; those that would lose something by it stay as they are."""
        targets = samples.targets
        if self.labels is not None:
            targets = self.labels.encode(targets, f"The targets of {whose}")
            numbers = f"0 to {len(self.labels.classes) - 1}"
            self.say(f"The labels {self.labels} are numbered {numbers}, in the order of problem.classes.")
        return Samples(
            self._cast(samples.inputs, self._inputs, "inputs", self._rounds),
            self._cast(targets, self._targets, "targets", rounds or self._rounds),
        )

    def held_out(self, samples: Samples, whose: str) -> Samples:
        """Samples that are measured, of a table of their own: there 1.0 may be 1 even if no client has it so."""
        return self(samples, whose, rounds=True)

    def _cast(self, values: Tensor, dtype: torch.dtype, what: str, rounds: bool) -> Tensor:
        if values.dtype == dtype or values.is_complex():
            return values
        whole = dtype.is_floating_point or not values.is_floating_point()
        if not whole and not (rounds and torch.equal(values, values.round())):
            return values
        self.say(_used_as(what, values.dtype, dtype))
        return values.to(dtype)

    def say(self, sentence: str) -> None:
        """Say something, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            warnings.warn(sentence, DataNote, stacklevel=_levels_to_the_user())


def _levels_to_the_user() -> int:
    """How far up the stack, from whoever calls this, the first line is that is not this package's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "fedcef":
        level, frame = level + 1, frame.f_back
    return level


def _used_as(what: str, dtype: torch.dtype, used: torch.dtype) -> str:
    names = [str(kind).removeprefix("torch.") for kind in (dtype, used)]
    return f"The {what} are {names[0]}, and are used as {names[1]}."


def in_types_of_the_model(problem: Problem, labels: Labels | None, notes: Sequence[str] = ()) -> tuple[Problem, Cast]:
    """The problem with its samples in the types that its model and its loss take, and what makes them so.

    `labels` are the classes that its targets are numbers of, where they are known, and `notes` what is to be said, too.
    """
    held = [samples for samples in (problem.test, problem.validation) if samples is not None]
    first = problem.client_samples(0, 2) if problem.num_clients else held[0][:2]

    def distinct() -> Tensor | None:
        mine = problem.data.distinct_targets() if labels is None else None
        return None if mine is None else torch.unique(torch.cat([mine, *(s.targets.flatten() for s in held)]))

    cast = _cast_for(problem, first, labels, distinct)
    packed = problem.packing.dtypes if problem.packing else ()
    for dtype in {dtype for dtype in packed if dtype.is_floating_point and dtype != problem.z0.dtype}:
        notes = (*notes, _used_as("inputs", dtype, problem.z0.dtype))
    for note in notes:
        cast.say(note)
    data = problem.data.converted(cast)
    test, validation = (
        None if samples is None else cast.held_out(samples, whose)
        for samples, whose in ((problem.test, "the test set"), (problem.validation, "the validation set"))
    )
    found = labels or cast.labels
    classes = found.classes if found else ()
    return replace(problem, data=data, test=test, validation=validation, classes=classes), cast


def _cast_for(problem: Problem, first: Samples, labels: Labels | None, distinct: Callable[[], Tensor | None]) -> Cast:
    """The types for a problem with such samples; `distinct` are its targets, where all of them are at hand."""
    trial = _Trial(problem)
    inputs = _first_that(first.inputs, problem.z0.dtype, lambda values: trial.outputs(values) is not None)
    outputs = trial.outputs(first.inputs.to(inputs))
    if first.targets.is_floating_point():
        if _are_classes(trial, outputs, first.targets):
            return Cast(inputs, torch.int64, rounds=True)
        return Cast(inputs, problem.z0.dtype)
    if outputs is None:
        return Cast(inputs, first.targets.dtype)
    if labels is not None:
        labels.check_outputs(outputs)
    zeros = torch.zeros_like(first.targets)  # a class that every loss knows
    targets = _first_that(zeros, problem.z0.dtype, lambda values: trial.takes(outputs, values))
    if labels is None and _are_numbers(trial, outputs, zeros, distinct):
        return Cast(inputs, problem.z0.dtype)
    if first.targets.dtype == torch.bool and targets != torch.bool:
        return Cast(inputs, targets, Labels((False, True)))
    return Cast(inputs, targets, _numbered_anew(trial, outputs, zeros.to(targets), distinct))


def _are_classes(trial: _Trial, outputs: Tensor | None, targets: Tensor) -> bool:
    """Whether numbers with a decimal point are classes all the same, as tables with gaps make them: 0.0, 1.0, …"""
    if outputs is None or not torch.equal(targets, targets.round()):
        return False
    zeros = torch.zeros_like(targets, dtype=outputs.dtype)
    return not trial.takes(outputs, zeros) and trial.takes(outputs, zeros.long())


def _are_numbers(trial: _Trial, outputs: Tensor, zeros: Tensor, find: Callable[[], Tensor | None]) -> bool:
    """Whether whole numbers are no classes: there is one output for each, and its sign could tell no more than two."""
    if zeros.dtype == torch.bool or outputs.numel() != zeros.numel() or not trial.takes(outputs, zeros.to(outputs)):
        return False
    distinct = find()
    return distinct is not None and int((distinct.long() >= 0).sum()) > 2


def _first_that(values: Tensor, floating: torch.dtype, works: Callable[[Tensor], bool]) -> torch.dtype:
    """The type in which values can be used: their own, int64 or a floating one; their own if none is."""
    if values.is_floating_point():
        return floating
    kinds = dict.fromkeys((values.dtype, torch.int64, floating))
    return next((kind for kind in kinds if works(values.to(kind))), values.dtype)


def _numbered_anew(trial: _Trial, outputs: Tensor, zeros: Tensor, find: Callable[[], Tensor | None]) -> Labels | None:
    """The labels, if the loss cannot take them and there are as many as the model tells apart."""
    if outputs.is_cuda or zeros.ndim != 1:  # on a GPU, trying would end the process
        return None
    distinct = find()
    if distinct is None or len(distinct) != outputs_of(outputs):
        return None
    distinct = distinct.long()  # torch compares no uint16
    strange = distinct[(distinct < 0) | (distinct >= len(distinct))]
    if not len(strange):
        return None
    if zeros.is_floating_point() or not any(trial.takes(outputs, torch.full_like(zeros, int(n))) for n in strange):
        return Labels(tuple(distinct.tolist()))
    return None


class _Trial:
    """Passes through the model and the loss that may fail, and leave no traces."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._model = problem, problem.model
        if [*problem.model.buffers()]:  # which a pass may change
            self._model = copied(problem.model, shares=True)

    def outputs(self, inputs: Tensor) -> Tensor | None:
        """The model's, or None where it fails."""
        problem = self._problem
        outputs = _tried(lambda: problem.outputs(self._model, problem.z0, inputs.clone()))
        return outputs if isinstance(outputs, Tensor) else None

    def takes(self, outputs: Tensor, targets: Tensor) -> bool:
        """Whether the loss takes such targets."""
        return _tried(lambda: self._problem.loss(outputs, targets)) is not None


def _tried(compute: Callable[[], Any]) -> Any:
    with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # torch only warns of outputs and targets that broadcast by accident
        try:
            return compute()
        except Exception:
            return None
