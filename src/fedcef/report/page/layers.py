"""Sparsity per layer: the share of parameters that are not zero, in every tensor of the trained models."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from fedcef.core.errors import RunError
from fedcef.report.data.groups import Method
from fedcef.report.data.records import one_line
from fedcef.report.figures.style import look
from fedcef.report.figures.swatch import swatch
from fedcef.report.page.markup import count, scrolling


@dataclass(frozen=True)
class Layer:
    shape: tuple[int, ...]
    nonzero: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def layers_of(folder: Path) -> dict[str, Layer]:
    """The tensors of a run's model by name; empty where the run has none yet."""
    path = folder / "model.safetensors"
    if not path.is_file():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            tensors = ((one_line(name), file.get_tensor(name)) for name in sorted(file.keys(), key=_by_number))
            return {name: Layer(tuple(tensor.shape), int(tensor.count_nonzero())) for name, tensor in tensors}
    except (SafetensorError, OSError) as error:
        raise RunError(f"The model of the run in {folder} cannot be read: {error}.") from error


def _by_number(name: str) -> list[tuple[int, str]]:
    """Layer 10 after layer 2."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def layers_section(items: Sequence[Method], places: Sequence[int]) -> str:
    """Layers by methods; nothing where no run has a model."""
    found = [[layers for record in item.records if (layers := layers_of(record.folder))] for item in items]
    names = {name: layer for models in found for model in models for name, layer in model.items()}
    if not names:
        return ""
    with_models = [(item, place, models) for item, place, models in zip(items, places, found, strict=True) if models]
    heads = "".join(
        f"<th scope=col data-method={place}>{escape(item.label)}<br>{swatch(look(place))}</th>"
        for item, place, _ in with_models
    )
    rows = ""
    for name, layer in names.items():
        shape = " × ".join(map(str, layer.shape)) or "1"
        cells = "".join(_cell([model[name] for model in models if name in model]) for _, _, models in with_models)
        head = f"<th scope=row><code>{escape(name)}</code></th><td class=text>{shape}</td><td>{layer.size:,}</td>"
        rows += f"<tr>{head}{cells}</tr>"
    totals = "".join(_cell([_whole(model) for model in models]) for _, _, models in with_models)
    size = sum(layer.size for layer in names.values())
    table = (
        "<table class=layers><thead><tr><th scope=col>layer</th><th scope=col class=text>shape</th>"
        f"<th scope=col>parameters</th>{heads}</tr></thead><tbody>{rows}</tbody>"
        f"<tfoot><tr><th scope=row>all</th><td></td><td>{size:,}</td>{totals}</tr></tfoot></table>"
    )
    return scrolling(table, f"Density of {count(len(names), 'layer')}")


def _whole(model: dict[str, Layer]) -> Layer:
    return Layer((sum(layer.size for layer in model.values()),), sum(layer.nonzero for layer in model.values()))


def _cell(layers: Sequence[Layer]) -> str:
    if not layers:
        return "<td>–</td>"
    shares = np.array([100 * layer.nonzero / max(1, layer.size) for layer in layers])
    spread = f"<span class=spread>± {shares.std(ddof=1):.1f}</span>" if len(shares) > 1 and shares.std() >= 0.05 else ""
    return f'<td class=level style="--level:{shares.mean():.3g}%">{shares.mean():.1f}{spread}</td>'
