"""The paper's figures: test accuracy and train loss against gigabytes by the paper's count, for every data set."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcef.report.data.groups import Group, Method
from fedcef.report.data.looks import Look, legend_looks
from fedcef.report.figures.figure import Reach, draw_legend, draw_panel, drawing, legend_rows, with_curves

WIDTH = 3.5  # inches: one column
GIGABYTE = 1e9


def draw_paper(groups: Sequence[Group], out: Path) -> list[Path]:
    """Draws one figure per data set and metric as PNG and PDF."""
    looks, paths = legend_looks(groups), []
    for group in groups:
        for metric in group.metrics:
            stem = f"paper_{metric}_{_file_name(group.name)}"
            for path in (out / f"{stem}.png", out / f"{stem}.pdf"):
                _draw(group, metric, path, [looks[place] for place in group.places])
                paths.append(path)
    return paths


def _file_name(dataset: str) -> str:
    return "".join(c if c.isalnum() or c in "-" else "_" for c in dataset)


def _draw(group: Group, metric: str, path: Path, looks: Sequence[Look]) -> None:
    items, looks = with_curves(group.items, looks, [metric])
    with drawing(path) as fig:
        fig.set_size_inches(WIDTH, 2.45 + 0.16 * legend_rows(items, WIDTH))
        draw_panel(fig.subplots(), items, looks, "paper_bytes", metric, _reach(items, metric))
        draw_legend(fig, items, looks, WIDTH)


def _reach(items: Sequence[Method], metric: str) -> Reach:
    ends = [float(np.max(curve.x["paper_bytes"])) for item in items if (curve := item.curve(metric))]
    return Reach(0.0, max([end for end in ends if end > 0], default=GIGABYTE), False, GIGABYTE, "GB")
