"""The page's panels as figures for a paper: one file per metric and format, one column wide."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcef.core.errors import RunError
from fedcef.report.data.groups import CLOCK, Method, group_runs, log_x, shown_metrics
from fedcef.report.data.link_time import ClientLink
from fedcef.report.data.looks import choose_looks
from fedcef.report.data.records import RunRecord
from fedcef.report.data.units import unit_of
from fedcef.report.figures.figure import Reach, draw_legend, draw_panel, drawing, legend_rows, with_curves

FORMATS = ("png", "pdf", "svg")
WIDTH = 3.5  # inches: one column


def draw_figures(records: Sequence[RunRecord], out: Path, axis: str, link: ClientLink = ClientLink()) -> list[Path]:
    """Draws every metric against `axis` and returns the files, e.g. accuracy_wire_bytes.pdf."""
    items = group_runs(records, link)
    if axis == "network_s" and not all(item.participants for item in items):
        raise RunError("Network time needs the number of clients; the settings of some runs do not have num_clients.")
    if axis == CLOCK and not all(item.has_clock for item in items):
        raise RunError(
            "Some of these runs have no simulated time; give them a network, or draw against something else."
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The figures cannot be written to {out}: {error.strerror}.") from error
    chosen = choose_looks(items)
    paths = [out / f"{metric}_{axis}.{suffix}" for metric in shown_metrics(items) for suffix in FORMATS]
    for path in paths:
        metric = path.stem.removesuffix(f"_{axis}")
        drawn, looks = with_curves(items, chosen, [metric])
        with drawing(path) as fig:
            fig.set_size_inches(WIDTH, 2.45 + 0.16 * legend_rows(drawn, WIDTH))
            draw_panel(fig.subplots(), drawn, looks, axis, metric, _reach(drawn, axis, metric))
            draw_legend(fig, drawn, looks, WIDTH)
    return paths


def _reach(items: Sequence[Method], axis: str, metric: str) -> Reach:
    columns = [c.x[axis] for item in items if (c := item.curve(metric))]
    positive = [some for x in columns if (some := x[np.isfinite(x) & (x > 0)]).size]
    low = min((float(x.min()) for x in positive), default=1.0)
    high = max((float(x.max()) for x in positive), default=1.0)
    log = axis.endswith("bytes") and log_x(items, axis)
    return Reach(low, high, log, *unit_of(axis, low, high, log))
