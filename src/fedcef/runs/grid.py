"""The settings that a frontier tries where an experiment names none itself."""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import Any

from fedcef.algorithms import ALGORITHMS
from fedcef.compressors import COMPRESSORS
from fedcef.compressors.sparsifiers import Sparsifier
from fedcef.core.errors import ConfigError
from fedcef.core.parts import find
from fedcef.runs.settings import Settings, Variant

RATIOS = (0.1, 0.03, 0.01)
VALUES = ("native", "uniform4", "log3")
DOWN = 5  # a lossy downlink keeps so many times the share of the uplink: it carries the news of several clients


def variants_or_grid(config: Settings) -> list[Settings]:
    """The variants of an experiment, or the default grid."""
    if config.compare:
        return config.variants()
    return config.model_copy(update={"compare": default_grid(config)}).variants()


def default_grid(config: Settings) -> tuple[Variant, ...]:
    """Ratios by values by downlinks, for a method that compresses."""
    name = config.algorithm["name"]
    kind = find("algorithm.name", name, ALGORITHMS)
    if not kind.compresses:
        raise ConfigError(
            f"{config.name} has no [[compare]] entries, and {name} has no compressor to vary; add entries, or take "
            "algorithm.name=fedcef."
        )
    lossy = [False, True] if any(f.name == "down_compressor" for f in fields(kind)) else [False]
    compressor = find("compressor.name", config.compressor["name"], COMPRESSORS)
    chosen = {} if issubclass(compressor, Sparsifier) else {"compressor.name": "topk"}
    return tuple(_variant(*point, chosen, len(lossy) > 1) for point in product(RATIOS, VALUES, lossy))


def _variant(ratio: float, values: str, lossy: bool, chosen: dict[str, Any], named: bool) -> Variant:
    changes: dict[str, Any] = {**chosen, "compressor.ratio": ratio, "compressor.values": values}
    label = f"r={ratio:g} {values}"
    if not named:
        return Variant(label=label, set=changes)
    if not lossy:  # and without what the experiment's own downlink would compress with
        changes |= {"algorithm.downlink": "increment", "down_compressor": {}}
        return Variant(label=f"{label}, increment", set=changes)
    down = min(1.0, DOWN * ratio)
    changes |= {"algorithm.downlink": "lossy", "down_compressor.ratio": down, "down_compressor.values": values}
    return Variant(label=f"{label}, lossy {down:g}", set=changes)
