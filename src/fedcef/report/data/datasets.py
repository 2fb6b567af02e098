"""Runs by data set: what was measured on one says nothing about another, so that each has its own table and panels."""

from collections.abc import Callable, Sequence

from fedcef.report.data.groups import Group, Method, group_runs
from fedcef.report.data.names import dataset_title
from fedcef.report.data.records import RunRecord

NO_NAME = "data"  # of a data set that settings do not name


def group_by_dataset(
    records: Sequence[RunRecord], metrics_of: Callable[[Sequence[Method]], tuple[str, ...]], order: Sequence[str] = ()
) -> tuple[list[Group], list[str]]:
    """The methods by data set, and their names in the legend of all, with what the reader must know of some.

    A method looks the same on all.  Those named in `order` come first.
    """
    by_dataset: dict[str, list[RunRecord]] = {}
    for record in records:
        by_dataset.setdefault(record.dataset or NO_NAME, []).append(record)
    every = {name: group_runs(some) for name, some in sorted(by_dataset.items())}
    items = {name: group for name, group in every.items() if metrics_of(group)}
    labels = list(dict.fromkeys(item.label for group in items.values() for item in group))
    labels.sort(key=lambda label: order.index(label) if label in order else len(order))
    groups = []
    for name, group in items.items():
        group.sort(key=lambda item: labels.index(item.label))
        places = tuple(labels.index(item.label) for item in group)
        groups.append(Group(name, tuple(group), places, metrics_of(group)))
    return groups, [_name(label, groups) for label in labels]


def several_datasets(records: Sequence[RunRecord]) -> bool:
    """Whether the runs are not all on the same data."""
    return len({record.dataset or NO_NAME for record in records}) > 1


def _name(label: str, groups: Sequence[Group]) -> str:
    notes = [f"{i.note} on {dataset_title(g.name)}" for g in groups for i in g.items if i.label == label and i.note]
    return f"{label} ({', '.join(notes)})" if notes else label
