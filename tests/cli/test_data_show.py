"""fedcef data show: the deal of a run, in a terminal of 80 columns and as a picture."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from fedcef.cli import terminal
from fedcef.core.errors import FedcefError
from fedcef.problems.holdings import Holdings
from fedcef.report.figures.holdings import draw_holdings
from fedcef.runs.experiments import load_settings

pytest.importorskip("sklearn", reason="the data set of these tests is scikit-learn's digits")


@pytest.fixture
def show(fedcef, monkeypatch):
    """What `fedcef data show` prints in a terminal of 80 columns; no line is longer."""

    def call(*arguments):
        monkeypatch.setattr(terminal.console, "_width", 80)
        result = fedcef("data", "show", *arguments)
        assert result.code == 0, result.err
        assert max(map(len, result.out.splitlines())) <= 80
        return result.out

    return call


def row(out, name):
    (found,) = [line.split()[1:] for line in out.splitlines() if line.strip().startswith(f"{name} ")]
    return found


def test_a_data_set_with_the_default_deal(show):
    out = show("digits")
    assert out.startswith(
        "digits: 10 clients, 1,437 samples of 10 classes\ndirichlet: alpha 0.5, min_size 10; seed 0\n"
    )
    assert row(out, "samples")[-1] == "144"
    assert sum(int(row(out, str(client))[-2]) for client in range(10)) == 1437  # the table client by client


def test_the_page_shows_what_is_printed(show):
    page = (Path(__file__).parents[2] / "docs" / "partitions.md").read_text("utf-8")
    command, said = re.search(r"```sh\nfedcef data show (.*?)\n```\n\n```text\n(.*?)```", page, re.DOTALL).groups()
    assert [line.rstrip() for line in show(*command.split()).splitlines()] == said.splitlines()
    python, said = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL).groups()
    printed = StringIO()
    with redirect_stdout(printed):
        exec(python, {})
    assert printed.getvalue() == said


def test_it_is_the_deal_of_the_run(show):
    changes = ["data.partition=zipf", "num_clients=30", "seed=3"]
    out = show("demo", *(word for change in changes for word in ("--set", change)))
    sizes = load_settings("demo", changes).build_problem().sizes
    assert "zipf: exponent 1.0, labels iid, min_size 10; seed 3" in out
    assert row(out, "samples")[0] == str(int(sizes.min()))
    assert row(out, "samples")[-2] == str(int(sizes.max()))


@pytest.mark.parametrize(
    "changes",
    [
        ["data.partition=iid"],
        ["data.partition=shards", "num_clients=50"],
        ["data.partition=lognormal", "num_clients=60", "data.labels=dirichlet", "data.alpha=0.1"],
        ["data.partition=by_column", "data.column=ids.npy", "num_clients=4"],
    ],
)
def test_every_partition(show, tmp_path, changes):
    np.save(tmp_path / "ids.npy", np.arange(1437) % 5)
    out = show("digits", *(word for change in changes for word in ("--set", change)))
    assert changes[0].partition("=")[2] in out
    assert "distance: total variation" in out


def test_a_population_is_told_of_by_some_of_its_clients(show, tmp_path):
    pytest.importorskip("matplotlib")
    out = show("digits", "--set", "data.partition=drawn", "--set", "num_clients=1000000", "--out", "deal.svg")
    assert "digits: 1,000,000 clients\n2,000 of them, drawn at random, have 100,000 samples of 10 classes\n" in out
    assert "Wrote deal.svg" in out
    assert (tmp_path / "deal.svg").stat().st_size < 200_000


def test_regression(show):
    out = show("lasso", "--set", "data.dim=8", "--set", "data.support=2")
    assert "lasso: 10 clients, 1,280 samples\nseed 0\n" in out
    assert "Targets are numbers: there are no classes" in out
    assert "distance" not in out


def test_a_problem_of_ones_own(show, tmp_path):
    (tmp_path / "mine_to_show.py").write_text(
        "import torch\nfrom torch import nn\nfrom fedcef import Problem\n\n\n"
        "def build(num_clients, seed, clients):\n"
        "    data = [(torch.zeros(i + 1, 2), torch.zeros(i + 1, dtype=torch.int64)) for i in range(num_clients)]\n"
        "    return Problem.build(nn.Linear(2, 2), nn.functional.cross_entropy, data)\n"
    )
    out = show("mine_to_show:build", "--set", "num_clients=4")
    assert "mine_to_show:build: 4 clients, 10 samples of 1 classes" in out
    assert row(out, "samples")[:1] == ["1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "There is no experiment 'nowhere'"),
        (
            ["digits", "--set", "num_clients=2000"],
            "2000 clients cannot share 1437 samples; take fewer clients, or partition drawn",
        ),
        (["digits", "--set", "data.sigma=2"], "data.sigma is not for the partition dirichlet; leave it out."),
        (["digits", "--set", "data.partition=by_column"], "data.column is ''; it must be a file such as ids.npz:key"),
        (["digits", "--out", "deal.txt"], "A figure is a .png, .pdf or .svg file, not 'deal.txt'."),
    ],
)
def test_mistakes_are_one_sentence(fedcef, arguments, sentence):
    result = fedcef("data", "show", *arguments)
    assert result.code == FedcefError.exit_code or result.code == 2
    assert result.sentence.startswith(f"Error: {sentence}")


@pytest.mark.parametrize(
    ("kind", "clients"), [("classes", 50), ("classes", 51), ("numbers", 50), ("numbers", 51), ("neither", 1)]
)
def test_pictures_of_whatever_is_known(tmp_path, kind, clients):
    pytest.importorskip("matplotlib")
    sizes = np.arange(clients) + 1
    known = {
        "classes": {"classes": tuple(range(30)), "counts": np.eye(30, dtype=np.int64)[sizes % 30] * sizes[:, None]},
        "numbers": {"mean_targets": np.linspace(-1, 1, clients)},
        "neither": {},
    }[kind]
    draw_holdings(Holdings(sizes, **known), tmp_path / "deal.svg")
    text = (tmp_path / "deal.svg").read_text("utf-8")
    assert ("Class (area" in text) == (kind == "classes" and clients <= 50)
    assert ("Distance of its labels" in text) == (kind == "classes" and clients > 50)
    assert ("Mean target" in text) == (kind == "numbers")
