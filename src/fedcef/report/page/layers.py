"""Sparsity per layer: the share of parameters that are not zero, in every tensor of the trained models."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from fedcef.core.errors import RunError
from fedcef.report.data.groups import Method
from fedcef.report.data.records import as_line
from fedcef.report.page.render import render
from fedcef.report.page.settings import MOST_COLUMNS
from fedcef.runs.reader import RunReader


@dataclass(frozen=True)
class Layer:
    """A tensor of a trained model."""

    shape: tuple[int, ...]
    nonzero: int

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return math.prod(self.shape)


def layers_of(folder: Path) -> dict[str, Layer]:
    """The tensors of a run's model by name; empty where the run has none yet."""
    model = RunReader(folder).model()
    return {
        as_line(name): Layer(tuple(model[name].shape), int(model[name].count_nonzero()))
        for name in sorted(model, key=_by_number)
    }


def _by_number(name: str) -> list[tuple[int, str]]:
    """Layer 10 after layer 2."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def render_layers(items: Sequence[Method], places: Sequence[int]) -> Markup:
    """Layers by methods; a model that is damaged is left out, and named."""
    columns, damaged = [], []
    for item, place in zip(items, places, strict=True):
        models = []
        for record in item.records:
            try:
                models.append(layers_of(record.folder))
            except RunError as error:
                damaged.append(str(error))
        columns.append((place, item.label, [model for model in models if model]))
    columns = [column for column in columns if column[2]]
    layers = {name: layer for _, _, models in columns for model in models for name, layer in model.items()}
    rows = [
        (name, layer, [_share([model[name] for model in models if name in model]) for _, _, models in columns])
        for name, layer in layers.items()
    ]
    return render(
        "layers.html",
        heads=[(place, label) for place, label, _ in columns],
        rows=rows,
        size=sum(layer.size for layer in layers.values()),
        totals=[_share([_whole(model) for model in models]) for _, _, models in columns],
        damaged=damaged,
        by_method=len(columns) > max(MOST_COLUMNS, len(rows)),
    )


def _whole(model: dict[str, Layer]) -> Layer:
    return Layer((sum(layer.size for layer in model.values()),), sum(layer.nonzero for layer in model.values()))


def _share(layers: Sequence[Layer]) -> tuple[float, float] | None:
    """Mean and standard deviation over the seeds of the percentage that is not zero; None where nobody has it."""
    if not layers:
        return None
    shares = np.array([100 * layer.nonzero / max(1, layer.size) for layer in layers])
    return float(shares.mean()), float(shares.std(ddof=1)) if len(shares) > 1 and shares.std() >= 0.05 else 0.0
