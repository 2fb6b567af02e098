from pathlib import Path

import numpy as np
import pytest

from fedcef.core.errors import RunError
from fedcef.report import find_runs, load_runs, write_page
from fedcef.report.data.groups import group_runs, log_x, log_y


def test_columns_have_nan_where_a_round_was_not_evaluated(make_run):
    (run,) = load_runs([make_run("a")])
    assert run.label == "FedCEF"
    assert (run.seed, run.status, run.dataset, run.last_round) == (0, "finished", "mnist", 20)
    np.testing.assert_array_equal(run.rounds["round"], np.arange(21))
    assert np.isnan(run.rounds["accuracy"][1::2]).all()
    assert np.isfinite(run.rounds["accuracy"][::2]).all()
    np.testing.assert_array_equal(run.rounds["wire_bytes"], 30_000 * np.arange(21))
    np.testing.assert_array_equal(run.rounds["paper_bytes"], 70_000 * np.arange(21))


@pytest.mark.parametrize(
    "tail", ['{"round": 21, "wire_up_by', '{"round": 21, "note": "\u00e9'.encode()[:-1], "21", "{}"]
)
def test_a_torn_last_line_is_ignored(make_run, tail):
    folder = make_run("a", status=None)
    with (folder / "rounds.jsonl").open("ab") as file:
        file.write(tail if isinstance(tail, bytes) else tail.encode())
    (run,) = load_runs([folder])
    assert run.last_round == 20


def test_a_damaged_line_inside_is_left_out_and_named(make_run):
    folder = make_run("a")
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    lines[4] = lines[4][:20]
    (folder / "rounds.jsonl").write_text("\n".join(lines))
    (run,) = load_runs([folder])
    np.testing.assert_array_equal(run.rounds["round"], [t for t in range(21) if t != 4])
    assert run.damage == (f"In {folder}, line 5 of rounds.jsonl is damaged and left out.",)


def test_a_round_recorded_twice_counts_once_and_the_later_line_wins(make_run):
    folder = make_run("a", rounds=4)
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "wire_up_bytes": 7, "accuracy": 0.5}\n')
    (run,) = load_runs([folder])
    np.testing.assert_array_equal(run.rounds["round"], np.arange(5))
    assert run.rounds["accuracy"][3] == 0.5


def test_a_missing_summary_means_unfinished_and_the_last_lines_count(make_run):
    (run,) = load_runs([make_run("a", status=None, rounds=13)])
    assert run.status == "unfinished"
    assert run.last("wire_up_bytes") == 130_000
    assert run.last("density") == 0.25
    assert np.isnan(run.last("no such column"))


@pytest.mark.parametrize(
    ("name", "content"),
    [("summary.json", "[1]"), ("summary.json", "{"), ("config.toml", "a = = 1"), ("facts.json", '{"clients"')],
)
def test_a_damaged_file_is_named_and_hides_no_other(make_run, tmp_path, name, content):
    folder = make_run("a")
    (folder / name).write_text(content)
    (run,) = load_runs([folder])
    assert run.last_round == 20
    assert len(run.damage) == 1
    assert run.damage[0].startswith(f"{folder / name} cannot be read and is left out: ")
    write_page([run], tmp_path / "page.html")
    assert f"{name} cannot be read" in (tmp_path / "page.html").read_text("utf-8")


def test_a_folder_without_a_run_is_an_error(tmp_path: Path):
    with pytest.raises(RunError, match="holds no run"):
        load_runs([tmp_path / "nowhere"])
    (tmp_path / "rounds.jsonl").write_text("")
    with pytest.raises(RunError, match="no complete line"):
        load_runs([tmp_path])
    with pytest.raises(RunError, match="nothing to report"):
        load_runs([])


def test_labels_are_one_printable_line(make_run):
    (run,) = load_runs([make_run("a", label="a\x1b[31m\nb" + "c" * 200)])
    assert run.label.startswith("a [31m bccc")
    assert len(run.label) == 80


def test_seeds_become_one_method_with_mean_and_extremes(make_run):
    folders = [make_run(f"s{s}", seed=s, accuracy=a) for s, a in enumerate((0.8, 0.9, 1.0))]
    (method,) = group_runs(load_runs(folders))
    curve = method.curve("accuracy")
    assert curve is not None
    np.testing.assert_array_equal(curve.x["round"], np.arange(0, 21, 2))
    np.testing.assert_allclose([curve.low[-1], curve.mean[-1], curve.high[-1]], [0.8, 0.9, 1.0])
    np.testing.assert_array_equal(curve.x["wire_bytes"], 30_000 * np.arange(0, 21, 2))


def test_a_mean_ends_with_the_first_seed_that_ends(make_run):
    folders = [make_run("s0", seed=0), make_run("s1", seed=1, rounds=9, status="diverged")]
    (method,) = group_runs(load_runs(folders))
    curve = method.curve("train_loss")
    assert curve is not None
    assert curve.x["round"][-1] == 8
    assert method.name == "FedCEF (1 of 2 diverged)"


def test_one_label_for_different_settings_or_equal_seeds_stays_apart(make_run):
    folders = [make_run("a", seed=0), make_run("b", seed=1, local_lr=0.5), make_run("c", label="other")]
    assert [m.label for m in group_runs(load_runs(folders))] == ["FedCEF [a]", "FedCEF [b]", "other"]
    assert [m.label for m in group_runs(load_runs([folders[0], folders[0]]))] == ["FedCEF [a]", "FedCEF [a]"]


def test_axes_are_logarithmic_where_the_span_asks_for_it(make_run):
    near = group_runs(load_runs([make_run("a"), make_run("b", label="b", up=49_000)]))
    far = group_runs(load_runs([make_run("c"), make_run("d", label="d", up=50_000)]))
    assert not log_x(near, "wire_bytes")
    assert log_x(far, "wire_bytes")
    assert log_y(near, "train_loss")
    assert not log_y(near, "accuracy")


def test_runs_come_in_the_order_of_the_summary(make_run, tmp_path):
    for name in "abcd":
        make_run(name)
    names = lambda: [folder.name for folder in find_runs(tmp_path)]  # noqa: E731
    assert names() == ["a", "b", "c", "d"]
    (tmp_path / "summary.csv").write_text("label,folder\nx,c\ny,a\n")
    assert names() == ["c", "a", "b", "d"]
    (tmp_path / "summary.csv").write_bytes(b"\xff\x00 no table")
    assert names() == ["a", "b", "c", "d"]
