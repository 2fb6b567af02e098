"""Runs grouped as the paper shows them: by data set, and a method looks the same on all."""

from collections.abc import Sequence

from fedcef.core.errors import RunError
from fedcef.report.data.groups import Group, group_runs
from fedcef.report.data.names import dataset_title
from fedcef.report.data.records import RunRecord

METRICS = ("accuracy", "train_loss")
ORDER = ("FedCEF r=0.1", "FedCEF r=0.01", "Zhang et al.", "FedDA", "FedCanon")  # of the curves; others follow


def group_by_dataset(records: Sequence[RunRecord]) -> tuple[list[Group], list[str]]:
    """The methods by data set, and their names in the legend of all, with what the reader must know of some."""
    by_dataset: dict[str, list[RunRecord]] = {}
    for record in records:
        by_dataset.setdefault(record.dataset or "data", []).append(record)
    items = {name: group_runs(some) for name, some in sorted(by_dataset.items())}
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
    return groups, [_name(label, groups) for label in labels]


def _name(label: str, groups: Sequence[Group]) -> str:
    notes = [f"{i.note} on {dataset_title(g.name)}" for g in groups for i in g.items if i.label == label and i.note]
    return f"{label} ({', '.join(notes)})" if notes else label
