"""Stacks of messages that were computed in pieces: joined again, or added up where only their sum is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message
from fedcef.core.errors import ConfigError
from fedcef.wire import Dense, Payload
from fedcef.wire.forms.relay import Rows
from fedcef.wire.stacks import TensorTree, sum_in_order


def joined(stacks: Sequence[Payload]) -> Payload:
    """One stack of several, in their order: of the same form where they have it, else a list of single payloads."""
    if len(stacks) == 1:
        return stacks[0]
    if any(isinstance(stack, Rows) or not _alike(stacks[0], stack) for stack in stacks):
        return Rows(tuple(row for stack in stacks for row in stack.rows()))
    whole: Payload = _joined(stacks, stacks[0].rows()[0])
    return whole


def some_of(stack: Payload, rows: Tensor) -> Payload:
    """These rows of a stack, as a stack of the same form."""
    if isinstance(stack, Rows):
        return Rows(tuple(stack.payloads[row] for row in rows.tolist()))
    some: Payload = _some_of(stack, stack.rows()[0], rows)
    return some


@dataclass(frozen=True, eq=False)
class Added(Payload):
    """A stack of dense vectors of which the sum was kept, and how long each one was."""

    summed: Tensor
    """(p,): added up in the order of the clients."""
    each: Tensor
    """(N,): the size of each message."""
    each_on_paper: Tensor
    """(N,): the same by the paper's rule."""

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vectors."""
        return self.summed.shape[-1]

    @property
    def lead(self) -> torch.Size:
        """(N,)."""
        return self.each.shape

    def total(self) -> Tensor:
        """The sum."""
        return self.summed.clone()

    def nbytes(self) -> Tensor:
        """The sizes that the messages had."""
        return self.each

    def paper_nbytes(self) -> Tensor:
        """The sizes that they had by the paper's rule."""
        return self.each_on_paper

    def rows(self) -> list[Payload]:
        """An error: there is only the sum."""
        raise ConfigError(
            "The method looks at single dense messages of its cohort, of which only the sum was kept; compute the "
            "cohort at once, in one process (cohort_chunk = 0)."
        )

    def dense(self) -> Tensor:
        """An error: there is only the sum."""
        return self.rows()[0].dense()

    def encode(self) -> bytes:
        """An error: there is only the sum."""
        return self.rows()[0].encode()


class Gathering:
    """Takes in the messages of a cohort piece by piece, in the order of the clients.

    Dense vectors are as long as the model, and a mean is mostly all that a method wants of them: they are added up as
    they come, in the order in which the mean of the whole stack adds them, so that the stack is never needed.
    """

    def __init__(self, adds: bool) -> None:
        """`adds` says whether sums of dense vectors will do."""
        self._adds = adds
        self._pieces: list[Message] = []
        self._sums: dict[str, Tensor] = {}

    def take(self, up: Message) -> None:
        """The messages of the next clients."""
        piece: Message = {}
        for name, payload in up.items():
            if self._adds and is_plain(payload):
                self._sums[name] = added(self._sums.get(name), payload.dense())
                payload = Added(self._sums[name], payload.nbytes(), payload.paper_nbytes())
            piece[name] = payload
        self._pieces.append(piece)

    def message(self) -> Message:
        """The messages of all clients."""
        return {name: self._of([piece[name] for piece in self._pieces]) for name in self._pieces[0]}

    def _of(self, pieces: list[Payload]) -> Payload:
        last = pieces[-1]
        if not isinstance(last, Added):
            return joined(pieces)
        each, on_paper = [piece.nbytes() for piece in pieces], [piece.paper_nbytes() for piece in pieces]
        return Added(last.summed, torch.cat(each), torch.cat(on_paper))


def is_plain(payload: Payload) -> bool:
    """Whether it is vectors with all their entries as numbers."""
    return isinstance(payload, Dense) and isinstance(payload.values, Tensor)


def added(before: Tensor | None, vectors: Iterable[Tensor]) -> Tensor:
    """A sum so far and these vectors, added up one after the other."""
    return sum_in_order(vectors if before is None else chain([before], vectors))


def _alike(one: Any, other: Any) -> bool:
    """Whether two stacks are of the same form, with vectors of the same lengths."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return (one.ndim, one.shape[1:], one.dtype) == (other.ndim, other.shape[1:], other.dtype)
    if isinstance(one, TensorTree):
        names = [field.name for field in fields(one)]  # type: ignore[arg-type]
        return all(_alike(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return callable(one) or bool(one == other)


def _joined(values: Sequence[Any], row: Any) -> Any:
    """Stacks of the same form as one; `row` is the first vector's: what it has an axis less of is stacked."""
    first = values[0]
    if isinstance(first, Tensor):
        stacked = isinstance(row, Tensor) and first.ndim == row.ndim + 1
        return torch.cat(list(values)) if stacked else first
    if isinstance(first, TensorTree):
        names = [field.name for field in fields(first)]  # type: ignore[arg-type]
        changed = {name: _joined([getattr(v, name) for v in values], getattr(row, name)) for name in names}
        return replace(first, **changed)  # type: ignore[type-var]
    if isinstance(first, tuple) and isinstance(row, tuple):
        return tuple(_joined(each, part) for each, part in zip(zip(*values, strict=True), row, strict=True))
    return first


def _some_of(value: Any, row: Any, rows: Tensor) -> Any:
    """These rows of what is stacked, as in `_joined`; all else is alike for all of them."""
    if isinstance(value, Tensor):
        stacked = isinstance(row, Tensor) and value.ndim == row.ndim + 1
        return value[rows.to(value.device)] if stacked else value
    if isinstance(value, TensorTree):
        names = [field.name for field in fields(value)]  # type: ignore[arg-type]
        return replace(value, **{name: _some_of(getattr(value, name), getattr(row, name), rows) for name in names})  # type: ignore[type-var]
    if isinstance(value, tuple) and isinstance(row, tuple):
        return tuple(_some_of(part, one, rows) for part, one in zip(value, row, strict=True))
    return value
