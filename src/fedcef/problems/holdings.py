"""What clients hold, and how much they differ in it: sizes, classes, and how far each is from all of them together.

With n_i samples at client i, of which n_ik are of class k, p_ik = n_ik / n_i and p_k the same of all clients together:

    distance     ½ Σ_k |p_ik - p_k|                  total variation: 0 alike, near 1 nothing in common
    divergence   Σ_k p_ik log(p_ik / p_k)            Kullback and Leibler (1951), in nats
    Gini         Σ_i Σ_j |n_i - n_j| / (2 N Σ_i n_i) of the sizes (Gini 1912): 0 equal, near 1 one client has all

Nothing here needs torch: the report reads what a run wrote without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Counts = NDArray[np.int64]

LISTED = 200
"""Up to so many clients are kept one by one; of more, the quantiles."""
LEVELS = {"min": 0.0, "5%": 0.05, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95, "max": 1.0}
"""Which quantiles, by name; each is some client's value, not a mean of two."""


@dataclass(frozen=True, eq=False)
class Holdings:
    """How many samples every client has and, where targets are classes, how many of each."""

    sizes: Counts  # (clients,)
    classes: tuple[Any, ...] = ()
    counts: Counts | None = None  # (clients, classes)
    mean_targets: Reals | None = None
    """(clients,): of each client, where targets are numbers."""
    population: int = 0
    """How many clients there are, if these are only some of them, drawn at random."""

    @property
    def num_clients(self) -> int:
        """N, how many clients there are."""
        return self.population or len(self.sizes)

    @property
    def total(self) -> int:
        """How many samples these clients have."""
        return int(self.sizes.sum())

    @property
    def gini(self) -> float:
        """How unequal sizes are."""
        ascending, n = np.sort(self.sizes).astype(np.float64), len(self.sizes)
        return float((2 * np.arange(1, n + 1) - n - 1) @ ascending / max(1.0, n * ascending.sum()))

    @property
    def totals(self) -> Counts:
        """(classes,): how many samples of each class there are."""
        totals: Counts = self._known.sum(axis=0)
        return totals

    @property
    def holders(self) -> Counts:
        """(classes,): how many clients have samples of each class."""
        holders: Counts = (self._known > 0).sum(axis=0)
        return holders

    @property
    def held(self) -> Counts:
        """(clients,): how many classes each client has samples of."""
        held: Counts = (self._known > 0).sum(axis=1)
        return held

    @cached_property
    def shares(self) -> Reals:
        """(clients, classes): every client's distribution of classes; zeros where it has no samples."""
        shares: Reals = self._known / np.maximum(1, self._known.sum(axis=1, keepdims=True))
        return shares

    @cached_property
    def distances(self) -> Reals:
        """(clients,): total variation between a client's distribution of classes and that of all."""
        distances: Reals = 0.5 * np.abs(self.shares - self._everyone).sum(axis=1)
        return distances

    @cached_property
    def divergences(self) -> Reals:
        """(clients,): Kullback–Leibler divergence of a client's distribution of classes from that of all, in nats."""
        ratios = np.divide(self.shares, self._everyone, out=np.ones_like(self.shares), where=self.shares > 0)
        divergences: Reals = (self.shares * np.log(ratios)).sum(axis=1).clip(min=0)
        return divergences

    def measures(self) -> dict[str, Reals]:
        """What is told of clients, by name: one number for each."""
        found = {"samples": self.sizes.astype(np.float64)}
        if self.counts is not None:
            found |= {"classes": self.held.astype(np.float64), "distance": self.distances}
            found |= {"divergence": self.divergences}
        if self.mean_targets is not None:
            found["mean target"] = self.mean_targets
        return found

    def summary(self) -> Summary:
        """What is told of them instead where they are many."""
        measures, known, levels = self.measures(), self.counts is not None, list(LEVELS.values())
        return Summary(
            number=self.num_clients,
            seen=len(self.sizes),
            total=self.total,
            gini=self.gini,
            quantiles={
                name: np.quantile(values, levels, method="nearest").tolist() for name, values in measures.items()
            },
            means={name: float(some.mean()) for name, some in measures.items()},
            classes=list(self.classes),
            totals=self.totals.tolist() if known else [],
            holders=self.holders.tolist() if known else [],
        )

    def facts(self) -> dict[str, Any]:
        """As facts.json keeps it: client by client, or the summary where they are many or not all known."""
        if self.num_clients > LISTED or self.population:
            return {"summary": vars(self.summary())}
        if self.counts is None:
            return {"samples": self.sizes.tolist()}
        return {"samples": self.sizes.tolist(), "classes": list(self.classes), "counts": self.counts.tolist()}

    @property
    def _known(self) -> Counts:
        assert self.counts is not None, "targets are classes"
        return self.counts

    @property
    def _everyone(self) -> Reals:
        everyone: Reals = self.totals / max(1, self.totals.sum())
        return everyone


@dataclass(frozen=True)
class Summary:
    """Clients by quantiles: as long for a million of them as for ten."""

    number: int
    """How many clients there are."""
    seen: int
    """How many of them this tells of: all, or some that were drawn at random."""
    total: int
    """How many samples those have."""
    gini: float
    """Of their sizes."""
    quantiles: dict[str, list[float]]
    """Of each measure, at `LEVELS`."""
    means: dict[str, float]
    """Of each measure."""
    classes: list[Any]
    totals: list[int]
    """How many samples of each class there are."""
    holders: list[int]
    """How many clients have samples of each class."""
