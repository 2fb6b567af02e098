"""Figures for papers: legends without idle entries, words instead of settings' names, labels that cover nothing."""

import pytest

pytest.importorskip("matplotlib")

from fedcef.report import draw_figure, draw_figures, draw_tradeoff, load_runs
from fedcef.report.data.groups import group_runs
from fedcef.report.data.looks import choose_looks
from fedcef.report.data.names import compressor_title, method_title, regularizer_title
from fedcef.report.figures.figure import with_curves
from fedcef.report.figures.tradeoff import _number


def test_a_legend_names_only_what_has_a_curve(make_run, tmp_path):
    folders = [make_run("a", label="with accuracy"), make_run("b", label="without", accuracy=None)]
    records = load_runs(folders)
    items = group_runs(records)
    drawn, looks = with_curves(items, choose_looks(items), ["accuracy"])
    assert [item.label for item in drawn] == ["with accuracy"]
    assert looks == choose_looks(items)[:1]  # a curve keeps its look, whoever else is drawn
    assert [item.label for item in with_curves(items, choose_looks(items), ["gap"])[0]] == ["with accuracy", "without"]
    draw_figures(records, tmp_path / "figures", "round")
    assert "without" not in (tmp_path / "figures" / "accuracy_round.svg").read_text()
    draw_figure(records, tmp_path / "both.svg")  # its second metric, the loss, has a curve of each
    assert "without" in (tmp_path / "both.svg").read_text()


def test_a_tradeoff_in_words(make_run, tmp_path):
    weights = {"l1": (1e-5, 3e-4), "group_lasso": (1e-4, 0.01)}
    folders = [
        make_run(
            f"{name}-{weight}", more=f'\n[regularizer]\nname = "{name}"\nweight = {weight}\n', accuracy=0.9 - weight
        )
        for name, some in weights.items()
        for weight in some
    ]
    draw_tradeoff(load_runs(folders), tmp_path / "tradeoff.svg")
    text = (tmp_path / "tradeoff.svg").read_text()
    for words in ("ℓ1", "group lasso", "λ = 1e-5", "λ = 3e-4", "λ = 1e-4", "λ = 0.01"):
        assert f">{words}<" in text, words


def test_names_in_print():
    assert compressor_title("topk", "uniform4") == "Top-k, 4 bits"
    assert compressor_title("my_package:Mine") == "my package:Mine"
    assert method_title("zhang") == "Zhang et al."
    assert regularizer_title("sparse_group_lasso") == "sparse group lasso"
    assert [_number(weight) for weight in (0, 3e-4, 1.5e-3, 0.02)] == ["0", "3e-4", "1.5e-3", "0.02"]
