"""The paper's figures: one per data set and metric, and a page with all of them."""

import pytest
from test_report import parse

from fedcef.core.errors import RunError
from fedcef.report import load_runs, write_paper
from fedcef.report.data.paper import group_by_dataset

LABELS = ("FedCanon", "FedDA", "FedCEF r=0.1", "FedCEF r=0.01", "Zhang et al.")


@pytest.fixture
def runs(make_run):
    return [
        make_run(
            f"{dataset}{i}{seed}", label=label, seed=seed, up=size * (i + 1), dataset=dataset, accuracy=0.8 + seed / 9
        )
        for dataset, size in (("mnist", 10**6), ("cifar10", 10**8))
        for i, label in enumerate(LABELS)
        for seed in range(2)
    ]


def test_four_figures_and_a_page_that_fetches_nothing(runs, tmp_path):
    out = tmp_path / "new" / "out"
    paths = write_paper(runs, out)
    stems = [f"paper_{metric}_{name}" for name in ("cifar10", "mnist") for metric in ("accuracy", "train_loss")]
    assert [path.name for path in paths] == [f"{s}.{kind}" for s in stems for kind in ("png", "pdf")] + ["paper.html"]
    for path in paths[:-1]:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"%PDF-")
        assert len(content) > 8_000
    page = parse(paths[-1])
    assert page.fetched == ["data:,"]
    assert "default-src 'none'" in paths[-1].read_text(encoding="utf-8")
    data = page.json()
    assert [panel["key"] for panel in data["panels"]] == [s.removeprefix("paper_") for s in stems]
    assert [panel["group"] for panel in data["panels"]] == [0, 0, 1, 1]
    assert data["axes"][0] == {**data["axes"][0], "key": "paper_bytes", "log": False}
    assert [method["name"] for method in data["methods"]] == [*LABELS[2:], "FedDA", "FedCanon"]
    assert all(len(method["curves"]) == 4 for method in data["methods"])


def test_a_method_looks_the_same_on_every_data_set_and_says_where_it_diverged(make_run, runs, tmp_path):
    own = make_run("own", label="Our own", dataset="mnist")
    bad = make_run("bad", label="Broken", rounds=9, status="diverged", dataset="cifar10")
    groups, names = group_by_dataset(load_runs([own, *runs, bad]))
    assert names == [*LABELS[2:], "FedDA", "FedCanon", "Broken (diverged on CIFAR-10)", "Our own"]
    assert [group.places for group in groups] == [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 6)]
    write_paper([own, bad], tmp_path)
    names = [method["name"] for method in parse(tmp_path / "paper.html").json()["methods"]]
    assert names == ["Broken (diverged on CIFAR-10)", "Our own"]


def test_what_was_not_recorded_is_not_drawn(make_run, tmp_path):
    lasso = make_run("l", dataset="lasso/../x", accuracy=None)
    paths = write_paper([lasso], tmp_path)
    assert [path.name for path in paths[:2]] == ["paper_train_loss_lasso____x.png", "paper_train_loss_lasso____x.pdf"]
    bare = make_run("b")
    (bare / "rounds.jsonl").write_text('{"round": 0}\n')
    with pytest.raises(RunError, match="No run has recorded an accuracy or a train loss"):
        write_paper([bare], tmp_path)
