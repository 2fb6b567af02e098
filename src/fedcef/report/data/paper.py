"""Runs grouped as the paper shows them: by data set, and a method looks the same on all."""

from collections.abc import Sequence

from fedcef.core.errors import RunError
from fedcef.report.data import datasets
from fedcef.report.data.groups import Group, Method
from fedcef.report.data.records import RunRecord

METRICS = ("accuracy", "train_loss")
ORDER = ("FedCEF r=0.1", "FedCEF r=0.01", "Zhang et al.", "FedDA", "FedCanon")  # of the curves; others follow


def group_by_dataset(records: Sequence[RunRecord]) -> tuple[list[Group], list[str]]:
    """The methods by data set with the paper's metrics, and their names in the legend of all."""

    def measured(items: Sequence[Method]) -> tuple[str, ...]:
        return tuple(metric for metric in METRICS if any(item.curve(metric) for item in items))

    groups, names = datasets.group_by_dataset(records, measured, ORDER)
    if not groups:
        raise RunError("No run has recorded an accuracy or a train loss to draw.")
    return groups, names
