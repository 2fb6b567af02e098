"""A deal: which client holds which samples, and what several ways of dealing are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Purpose, data_key


class Draw(IntEnum):
    """What the key (seed, PARTITION) is folded for; the numbers are part of every deal, a new one takes the next."""

    ORDER = 0
    SHARES = 1
    DEAL = 2
    SHUFFLE = 3
    SIZES = 4
    LABELS = 5


@dataclass(frozen=True, eq=False)
class Deal:
    """The samples of all clients in one list of row numbers, client after client; no sample is copied."""

    rows: Tensor  # (n,) int64
    sizes: Tensor  # (N,) int64: how many of the rows are each client's

    @classmethod
    def of(cls, parts: Sequence[Tensor]) -> Deal:
        """From one index tensor for each client."""
        return cls(torch.cat(list(parts)), torch.tensor([len(part) for part in parts]))

    @classmethod
    def to_owners(cls, rows: Tensor, owners: Tensor, num_clients: int) -> Deal:
        """Every row to its owner, (n,) and (n,); a client's rows keep their order."""
        return cls(rows[owners.argsort(stable=True)], owners.bincount(minlength=num_clients))

    @property
    def owners(self) -> Tensor:
        """(n,): whose each of the rows is."""
        return torch.repeat_interleave(torch.arange(len(self.sizes)), self.sizes)

    def parts(self) -> list[Tensor]:
        """One index tensor for each client: views of the list."""
        return list(torch.split(self.rows, self.sizes.tolist()))

    def shuffled(self, seed: int) -> Deal:
        """The same deal with each client's rows in a random order."""
        keys = data_key(seed, Purpose.PARTITION, Draw.SHUFFLE, torch.arange(len(self.sizes)))
        return Deal(self.rows[rng.permutations(keys, self.sizes)], self.sizes)

    def histogram(self, targets: Tensor, num_classes: int) -> Tensor:
        """(clients, classes): how many samples of each class each client has."""
        cells = self.owners * num_classes + targets[self.rows]
        return cells.bincount(minlength=len(self.sizes) * num_classes).view(-1, num_classes)


def samples_by_class(targets: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The samples class by class (n,), and how many each class that occurs has.

    Within a class they are in random order: which client gets which must not follow the file.
    """
    order = rng.permutation(data_key(seed, Purpose.PARTITION, Draw.ORDER), len(targets))
    counts = targets.bincount()
    return order[targets[order].argsort(stable=True)], counts[counts > 0]


def equal_sizes(count: int, parts: int) -> Tensor:
    """(parts,): sizes that differ by one at most, the larger ones first."""
    return count // parts + (torch.arange(parts) < count % parts).long()


def check_whole(name: str, value: object) -> None:
    """Refuse what is no count."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, not {value!r}.")


def check_number(name: str, value: object) -> None:
    """Refuse what is no parameter of a distribution."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1e6:
        raise ConfigError(f"{name} must be above 0 and at most 1e6, not {value}.")


def check_room(num_clients: int, min_size: int, samples: int) -> None:
    """Refuse a least size that there are not enough samples for."""
    check_whole("min_size", min_size)
    if num_clients * min_size > samples:
        raise ConfigError(
            f"{num_clients} clients with at least {min_size} samples each need more than the {samples} there are; "
            "take fewer clients or a smaller min_size."
        )
