"""Class labels that are no numbers from 0 on, such as words, and the number that each of them has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.core.errors import ProblemError

Column = NDArray[Any]
"""The labels of some samples, as they were handed in."""


def are_words(values: Any) -> bool:
    """Whether labels are words or other objects, which have to be numbered before a loss can take them."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "USO"


@dataclass(frozen=True)
class Labels:
    """Classes in their order: the first one's number is 0."""

    classes: tuple[Any, ...]
    given: bool = False
    """Whether the user named them, so that there may be some of which no sample is here."""

    @classmethod
    def named(cls, classes: Iterable[Any]) -> Labels:
        """Classes that the user names in their order."""
        try:
            listed = classes.tolist() if isinstance(classes, Tensor | np.ndarray) else list(classes)
            distinct = len(set(listed)) == len(listed) > 1
        except TypeError as error:
            raise ProblemError(
                f"The classes must be a list of words, numbers or the like, which can be compared: {error}."
            ) from None
        if not distinct:
            raise ProblemError(f"The classes are {listed}; there must be two or more, each of them once.")
        return cls(tuple(listed), given=True)

    @classmethod
    def found(cls, columns: Iterable[Column | Tensor]) -> Labels:
        """The classes that occur, in ascending order."""
        try:
            distinct = {label for column in columns for label in _distinct(column)}
        except TypeError as error:
            raise ProblemError(
                f"Class labels must be words, numbers or the like, which can be compared: {error}."
            ) from None
        try:
            return cls(tuple(sorted(distinct)))
        except TypeError:  # of several kinds, which have no order of their own
            return cls(tuple(sorted(distinct, key=lambda label: (type(label).__name__, repr(label)))))

    def encode(self, values: Column | Tensor, what: str) -> Tensor:
        """The numbers of labels, in their shape; `what` is for messages."""
        numbers = {label: number for number, label in enumerate(self.classes)}
        plain = values.cpu().numpy() if isinstance(values, Tensor) else values
        try:
            present, places = np.unique(plain, return_inverse=True)
            known = [numbers[label] for label in present.tolist()]
            found = np.asarray(known, dtype=np.int64)[places.reshape(plain.shape)]
        except TypeError:  # objects of several kinds
            found = np.asarray([numbers.get(label, -1) for label in plain.reshape(-1).tolist()]).reshape(plain.shape)
            if (found < 0).any():
                raise self._unknown(plain.reshape(-1)[int((found.reshape(-1) < 0).argmax())], what) from None
        except KeyError as error:
            raise self._unknown(error.args[0], what) from None
        return torch.from_numpy(found).to(values.device if isinstance(values, Tensor) else "cpu")

    def renumber(self, classes: tuple[Any, ...], targets: Tensor, what: str) -> Tensor:
        """The numbers of targets that are numbers of other classes, or are labels themselves where there are none."""
        if not classes:
            return self.encode(targets, what)
        return self.encode(_objects(classes), what).to(targets.device)[targets]

    def check_outputs(self, outputs: Any) -> None:
        """Refuse a model with other outputs than these classes need."""
        if not isinstance(outputs, Tensor):
            return
        count, there = outputs_of(outputs), len(self.classes)
        if there > count or (there < count and not self.given):
            some = ", ".join(map(repr, self.classes[:5])) + (", …" if there > 5 else "")
            raise ProblemError(
                f"There are {there} classes ({some}), but the model has outputs for {count}; give it as many, or name "
                "all classes in their order, Problem.build(…, classes=[…])."
            )

    def __str__(self) -> str:
        named = [repr(label) for label in self.classes]
        return ", ".join(named if len(named) < 8 else [*named[:6], "…", named[-1]])

    def _unknown(self, label: Any, what: str) -> ProblemError:
        if _is_missing(label):
            return ProblemError(f"{what} are missing for some samples; leave these samples out.")
        return ProblemError(f"{what} have the label {label!r}, which is none of the classes {self}; name all classes.")


def outputs_of(outputs: Tensor) -> int:
    """How many classes a model's outputs tell apart: those on axis 1, or two by their sign."""
    return outputs.shape[1] if outputs.ndim >= 2 and outputs.shape[1] > 1 else 2


def _objects(classes: tuple[Any, ...]) -> Column:
    column = np.empty(len(classes), dtype=object)
    column[:] = classes
    return column


def _distinct(column: Column | Tensor) -> set[Any]:
    if isinstance(column, Tensor):
        return set(column.unique().tolist())  # type: ignore[no-untyped-call]
    try:
        labels = np.unique(column).tolist()
    except TypeError:
        labels = column.reshape(-1).tolist()
    return {label for label in labels if not _is_missing(label)}


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)  # NaN is not equal to itself
    except TypeError:  # nor is pandas.NA, nor unequal
        return True
