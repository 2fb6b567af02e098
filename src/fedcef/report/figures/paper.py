"""The paper's figures: test accuracy and train loss against gigabytes by the paper's count, for every data set."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcef.core.errors import RunError
from fedcef.report.data.groups import X_AXES, Method, methods
from fedcef.report.data.records import RunRecord
from fedcef.report.figures.figure import Reach, drawing, legend, legend_rows, panel
from fedcef.report.figures.style import dataset_title, look
from fedcef.report.page.curves import Group
from fedcef.report.page.page import write_page

METRICS = ("accuracy", "train_loss")
ORDER = ("FedCEF r=0.1", "FedCEF r=0.01", "Zhang et al.", "FedDA", "FedCanon")  # of the curves; others follow
WIDTH = 3.5  # inches: one column
GIGABYTE = 1e9


def paper(records: Sequence[RunRecord], out: Path) -> list[Path]:
    """Draws one figure per data set and metric as PNG and PDF, and `paper.html` with all of them."""
    groups, labels = _groups(records)
    paths = []
    for group in groups:
        for metric in group.metrics:
            stem = f"paper_{metric}_{_file_name(group.name)}"
            for path in (out / f"{stem}.png", out / f"{stem}.pdf"):
                _figure(group, metric, path)
                paths.append(path)
    axes = dict.fromkeys(sorted(X_AXES, key=lambda axis: axis != "paper_bytes"), False)
    write_page(groups, [_name(label, groups) for label in labels], axes, out / "paper.html")
    return [*paths, out / "paper.html"]


def _groups(records: Sequence[RunRecord]) -> tuple[list[Group], list[str]]:
    """The methods by data set, and the labels of all: a method looks the same on every data set."""
    by_dataset: dict[str, list[RunRecord]] = {}
    for record in records:
        by_dataset.setdefault(record.dataset or "data", []).append(record)
    items = {name: methods(some) for name, some in sorted(by_dataset.items())}
    labels = list(dict.fromkeys(item.label for group in items.values() for item in group))
    labels.sort(key=lambda label: ORDER.index(label) if label in ORDER else len(ORDER))
    groups = []
    for name, group in items.items():
        group.sort(key=lambda item: labels.index(item.label))
        metrics = tuple(metric for metric in METRICS if any(item.curve(metric) for item in group))
        places = tuple(labels.index(item.label) for item in group)
        if metrics:
            groups.append(Group(name, tuple(group), places, metrics))
    if not groups:
        raise RunError("No run has recorded an accuracy or a train loss to draw.")
    return groups, labels


def _name(label: str, groups: Sequence[Group]) -> str:
    """A label in the legend of all data sets, with what the reader must know of some."""
    notes = [f"{i.note} on {dataset_title(g.name)}" for g in groups for i in g.items if i.label == label and i.note]
    return f"{label} ({', '.join(notes)})" if notes else label


def _file_name(dataset: str) -> str:
    return "".join(c if c.isalnum() or c in "-" else "_" for c in dataset)


def _figure(group: Group, metric: str, path: Path) -> None:
    looks = [look(place) for place in group.places]
    with drawing(path) as fig:
        fig.set_size_inches(WIDTH, 2.45 + 0.16 * legend_rows(group.items, WIDTH))
        panel(fig.subplots(), group.items, looks, "paper_bytes", metric, _reach(group.items, metric))
        legend(fig, group.items, looks, WIDTH)


def _reach(items: Sequence[Method], metric: str) -> Reach:
    ends = [float(np.max(curve.x["paper_bytes"])) for item in items if (curve := item.curve(metric))]
    return Reach(0.0, max([end for end in ends if end > 0], default=GIGABYTE), False, GIGABYTE, "GB")
