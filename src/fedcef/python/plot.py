"""Records as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from fedcef.core.errors import ConfigError
from fedcef.core.extras import needed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL = ("accuracy", "test_loss", "objective", "stationarity", "density")
LOGARITHMIC = ("stationarity", "gap", "l2_error", "control_gap")
COLOR = "#0072b2"
WORDS = {
    "accuracy": "Test accuracy", "density": "Share of parameters not zero", "gap": "Gap to the optimum",
    "l2_error": "Distance to the truth", "f1": "F1 of the support", "r2": "R²", "bytes": "MB sent, up and down",
    "wall_s": "Seconds", "sim_s": "Simulated seconds",
}  # fmt: skip


def plot(records: Sequence[dict[str, Any]], measures: Sequence[str], against: str) -> Figure:
    """One panel for each measure; the figure belongs to no window, and a notebook shows it by itself."""
    recorded = list(dict.fromkeys(name for record in records for name in record))
    shown = list(measures) or [name for name in USUAL if name in recorded]
    for name in [*shown, *([against] if against != "bytes" else [])]:
        if name not in recorded:
            raise ConfigError(f"{name!r} was not recorded; there are {', '.join(recorded)}, and bytes to plot against.")
    figure: Figure = _figure(len(shown))
    for ax, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        points = [(_x(record, against), record[name]) for record in records if name in record]
        x, y = zip(*points, strict=True)
        ax.plot(x, y, color=COLOR, marker="o", markersize=3)
        if name in LOGARITHMIC and min(y) > 0:
            ax.set_yscale("log")
        ax.set(xlabel=_words(against), ylabel=_words(name))
        ax.grid(True, color="#e6e6e6", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def _words(name: str) -> str:
    """What stands at an axis."""
    return WORDS.get(name, name.replace("_", " ").capitalize())


def _x(record: dict[str, float], against: str) -> float:
    return (record["wire_up_bytes"] + record["wire_down_bytes"]) / 1e6 if against == "bytes" else record[against]


def _figure(panels: int) -> Any:
    kind = needed("matplotlib.figure", "a figure", "plot").Figure

    class Shown(kind):  # type: ignore[misc, valid-type]
        """A figure that a notebook can show before anyone has chosen a backend."""

        def _repr_png_(self) -> bytes:
            image = BytesIO()
            self.savefig(image, format="png", dpi=110)
            return image.getvalue()

    return Shown(figsize=(3.2 * panels, 2.6), layout="constrained")
