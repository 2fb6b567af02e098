"""Every measure that a run of the package can record of a test set, a validation set and its clients has a panel."""

import json

import pytest
import torch

from fedcef.problems import metrics
from fedcef.problems.metrics import find_metric
from fedcef.report import load_runs, write_page
from fedcef.report.data.groups import group_runs, log_y, shown_metrics
from fedcef.report.data.names import METRICS, metric_title
from fedcef.simulation.evaluation import spread

ON_A_TEST_SET = {find_metric(name)[0] for name in metrics.METRICS}
OF_VALIDATION = {f"validation_{name.removeprefix('test_')}" for name in ON_A_TEST_SET}
OF_CLIENTS = {name for of in ("accuracy", "loss") for name in spread(of, torch.zeros(3))}


def test_all_of_them_have_a_title_of_their_own():
    assert METRICS.keys() >= ON_A_TEST_SET | OF_VALIDATION | OF_CLIENTS
    titles = [metric_title(metric) for metric in METRICS]
    assert len(set(titles)) == len(titles)


@pytest.fixture
def recorded(make_run):
    """A run that has recorded all of them, each falling from 100 to 1."""
    folder = make_run("a")
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        line |= dict.fromkeys(ON_A_TEST_SET | OF_VALIDATION | OF_CLIENTS, 100 / (1 + 4.95 * line["round"]))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_runs([folder])


def test_all_of_them_are_drawn(recorded, tmp_path):
    assert set(shown_metrics(group_runs(recorded))) >= ON_A_TEST_SET | OF_VALIDATION | OF_CLIENTS
    write_page(recorded, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for metric in ON_A_TEST_SET | OF_VALIDATION | OF_CLIENTS:
        assert METRICS[metric][0].replace("&", "&amp;") in page, metric


def test_losses_and_errors_far_apart_are_logarithmic_and_shares_never(recorded):
    items = group_runs(recorded)
    of_losses = {"test_loss", "perplexity", "bits_per_byte", "mse", "rmse", "mae"}
    wanted = of_losses | {f"validation_{name.removeprefix('test_')}" for name in of_losses}
    wanted |= {name for name in OF_CLIENTS if "loss" in name}
    found = {metric for metric in ON_A_TEST_SET | OF_VALIDATION | OF_CLIENTS if log_y(items, metric)}
    assert found == wanted
