"""What the figure and the page share: the look of each curve, names of axes, units, and the optional packages."""

import importlib
import math
from dataclasses import dataclass
from typing import Any

from fedcef.core.errors import FedcefError

# Okabe and Ito's colours (safe for colour-blind readers), with lighter twins for dark backgrounds.
COLORS = (
    ("#0072b2", "#4ba6dd"),
    ("#d55e00", "#f0813a"),
    ("#009e73", "#2fc79a"),
    ("#b8548c", "#dd8fbb"),
    ("#d08c00", "#edb73c"),
    ("#3a3a3a", "#d6d6d6"),
    ("#2f9fdc", "#8fd0f5"),
    ("#7a5c3e", "#c2a27f"),
)
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (5, 1.5, 1, 1.5), (1.5, 1.2), (8, 2))  # in line widths
MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("p", "pentagon"),
)

METRICS = {  # key -> (name, name of the unit, factor)
    "accuracy": ("Test accuracy", "%", 100.0),
    "gap": ("Gap to the optimum, F(z) - F*", "", 1.0),
    "objective": ("Objective", "", 1.0),
    "f1": ("F1 of the support", "", 1.0),
    "train_loss": ("Train loss", "", 1.0),
    "stationarity": ("Stationarity", "", 1.0),
    "density": ("Density of the model", "%", 100.0),
}
AXES = {  # key -> (name on an axis, name on a switch)
    "wire_bytes": ("Sent on the wire, up and down", "Wire bytes"),
    "paper_bytes": ("Sent by the paper's count, up and down", "Paper's bytes"),
    "round": ("Round", "Rounds"),
    "wall_s": ("Wall time", "Wall time"),
    "network_s": ("Simulated network time", "Network time"),
}
DATASETS = {"cifar10": "CIFAR-10", "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}  # names in print
DURATIONS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"))
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True)
class Look:
    color: str
    dark: str  # the colour on dark backgrounds
    dash: tuple[float, ...]
    marker: str  # matplotlib's name
    symbol: str  # plotly's name


def look(index: int) -> Look:
    """The look of the curve at a position; the numbers of colours, dashes and markers share no factor: 280 looks."""
    color, dark = COLORS[index % len(COLORS)]
    marker, symbol = MARKERS[index % len(MARKERS)]
    return Look(color, dark, DASHES[index % len(DASHES)], marker, symbol)


def metric_title(metric: str) -> str:
    name, unit, _ = METRICS[metric]
    return f"{name} ({unit})" if unit else name


def dataset_title(name: str) -> str:
    return DATASETS.get(name, name)


def byte_unit(typical: float) -> tuple[float, str]:
    """(bytes per unit, unit) in which `typical` reads as a number of at least one; GB = 1e9 bytes."""
    return next(((size, name) for size, name in UNITS if typical >= size), (1.0, "B"))


def axis_unit(low: float, high: float, log: bool) -> tuple[float, str]:
    """The unit of an axis: by its end, or by its geometric middle when logarithmic."""
    return byte_unit(math.sqrt(low * high) if log and low > 0 else high)


def unit_of(axis: str, low: float, high: float, log: bool) -> tuple[float, str]:
    """The size and the name of the unit of any x axis; rounds have none."""
    if axis.endswith("bytes"):
        return axis_unit(low, high, log)
    if axis == "round":
        return 1.0, ""
    return next(((size, name) for size, name in DURATIONS if high >= 3 * size), (1.0, "s"))


def amount(value: float) -> str:
    """A number for a table, three or more digits that matter: 1,234 / 123 / 12.3 / 1.23 / 0.123."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits <= 5 else f"{value:.2e}"


def extra(module: str) -> Any:
    """Imports an optional package, or says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise FedcefError(f"The report needs {package}; install it with: pip install 'fedcef[plot]'.") from error
