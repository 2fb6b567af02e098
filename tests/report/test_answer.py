"""The first sentence of a page, on hand-made records."""

import json

import numpy as np
import pytest

from fedcef.report import load_runs, write_page
from fedcef.report.data.answer import find_answer
from fedcef.report.data.groups import group_runs
from fedcef.report.data.noise import within_noise
from fedcef.report.data.table import collect_results


def answer(*folders):
    return find_answer(group_runs(load_runs(folders)))


def rewrite(folder, change):
    """Change the lines of a run and what its summary repeats of the last."""
    lines = [change(json.loads(line)) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, **lines[-1]}))
    return folder


def test_who_is_about_as_good_as_the_best_with_the_fewest_bytes(make_run):
    """Accuracies rise by 2 points a round of two; 30 kB a round of the one, 600 kB of the other, 3 MB of the third."""
    cheap = make_run("a", label="cheap", accuracy=0.90)
    dear = make_run("b", label="dear", accuracy=0.905, up=200_000, algorithm="zhang")
    worse = make_run("c", label="worse", accuracy=0.5, up=1_000, algorithm="fedda")
    found = answer(cheap, dear, worse)
    # 89.5 %: cheap has 81 % at round 18 and 90 % at 20; dear 81.45 % at 18 and 90.5 % at 20
    assert found.sentence == (
        "cheap reaches 89.5% after 600 kB, 20× fewer bytes than dear, the next method to get there."
    )
    best, fewest, least = found.tiles
    assert (best.what, best.value, best.whose, best.note) == ("Best accuracy", "90.5%", "dear", "")
    assert (fewest.what, fewest.value, fewest.whose) == ("Fewest bytes to reach 89.5%", "600 kB", "cheap")
    assert fewest.note == "20× fewer than dear"
    assert (least.value, least.whose, least.note) == ("60.0 kB", "worse", "accuracy 50.0%")


def test_another_method_is_compared_with_before_a_variant_of_the_same(make_run):
    folders = [
        make_run("a", label="r=0.01"),
        make_run("b", label="r=0.1", up=20_000),
        make_run("c", label="Zhang", up=30_000, algorithm="zhang"),
    ]
    assert answer(*folders).sentence == (
        "r=0.01 reaches 89.0% after 600 kB, 3.0× fewer bytes than Zhang, the next method to get there."
    )
    assert answer(*folders[:2]).sentence.endswith("2.0× fewer bytes than r=0.1, the next to get there.")
    same = make_run("d", label="as dear", algorithm="fedda")
    assert answer(folders[0], same).sentence.endswith("after 600 kB, about as many bytes as as dear needs.")


def test_a_target_that_nobody_else_reaches(make_run):
    found = answer(make_run("a", label="a"), make_run("b", label="b", accuracy=0.7, algorithm="zhang"))
    assert found.sentence == (
        "a reaches 89.0% after 600 kB; no other method gets there. The next best, b, ends at 70.0%."
    )


def test_one_run_and_runs_that_are_not_finished(make_run):
    assert answer(make_run("a", label="a")).sentence == "a reaches 90.0% after 20 rounds and 600 kB."
    cut = answer(make_run("b", label="b", rounds=12, status=None))
    assert cut.sentence == "b has so far reached 90.0% after 12 rounds and 360 kB."
    assert [tile.value for tile in cut.tiles] == ["90.0%", "12", "360 kB"]


def test_seeds_and_ties(make_run):
    """Means 90 and 91 with standard deviations of 1 and 2 points are a tie; 80 is none."""
    folders = [make_run(f"a{s}", label="a", seed=s, accuracy=x) for s, x in enumerate((0.89, 0.90, 0.91))]
    folders += [make_run(f"b{s}", label="b", seed=s, accuracy=x, up=20_000) for s, x in enumerate((0.89, 0.91, 0.93))]
    folders += [make_run(f"c{s}", label="c", seed=s, accuracy=x) for s, x in enumerate((0.79, 0.80, 0.81))]
    found = answer(*folders)
    assert (found.tiles[0].value, found.tiles[0].whose, found.tiles[0].note) == ("91.0% ± 2.0", "b", "a tie with a")
    assert found.sentence.startswith("a reaches 89.0% after 600 kB, 2.0× fewer bytes than b")
    rows = collect_results(group_runs(load_runs(folders))).rows
    assert [(row.cells[1].best, row.cells[1].tie) for row in rows] == [(False, True), (True, False), (False, False)]
    assert answer(*folders[:3]).sentence == "a reaches 90.0% on average over 3 seeds after 20 rounds and 600 kB."


def test_of_single_runs_only_equals_are_ties():
    assert within_noise(np.array([0.9]), np.array([0.9]))
    assert not within_noise(np.array([0.9]), np.array([0.9001]))


def test_the_fewest_bytes_are_marked_like_the_best_accuracy(make_run):
    folders = [
        make_run("a", label="a"),
        make_run("b", label="b", up=5_000),
        make_run("c", label="c", up=1, status=None),
    ]
    content = collect_results(group_runs(load_runs(folders)))
    place = [what for what, _ in content.headers].index("wire total")
    assert [row.cells[place].best for row in content.rows] == [False, True, False]  # what is unfinished has no total
    (alone,) = collect_results(group_runs(load_runs(folders[:1]))).rows
    assert not any(cell.best for cell in alone.cells)


def test_problems_without_accuracy_are_compared_by_the_gap(make_run):
    """Gaps of 2·0.8^t: at round 20 0.023, and ten times that, rounded up, from round 10 on."""
    folders = [
        rewrite(make_run(name, label=name, accuracy=None, up=up, algorithm=name, dataset="lasso"), with_gap)
        for name, up in (("fedcef", 10_000), ("zhang", 30_000))
    ]
    found = answer(*folders)
    assert found.sentence == (
        "fedcef reaches a gap to the optimum of 0.24 after 300 kB, 3.0× fewer bytes than zhang, "
        "the next method to get there."
    )
    assert [tile.what for tile in found.tiles][:2] == [
        "Least gap to the optimum", "Fewest bytes to a gap to the optimum of 0.24",
    ]  # fmt: skip


def with_gap(line):
    return {**line, "gap": 2.0 * 0.8 ** line["round"]} if "objective" in line else line


def test_objectives_are_compared_by_their_way_from_the_start(make_run):
    """From 2.001 to 0.024; one per cent of the way above that is 0.044, reached at round 18."""
    found = answer(
        make_run("a", label="a", accuracy=None), make_run("b", label="b", up=30_000, accuracy=None, algorithm="zhang")
    )
    assert found.sentence.startswith("a reaches an objective of 0.044 after 540 kB, 3.0×")


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        ({"status": "diverged", "rounds": 9}, "a diverged after 9 rounds."),
        ({"status": None, "rounds": 0, "accuracy": None}, "No run has recorded"),
    ],
)
def test_nothing_to_compare(make_run, runs, sentence):
    folder = make_run("a", label="a", **{"rounds": 1, **runs} if runs.get("rounds") else {**runs, "rounds": 1})
    if sentence.startswith("No run"):
        (folder / "rounds.jsonl").write_text('{"round": 0}\n')
    assert answer(folder).sentence.startswith(sentence)


def test_all_diverged_and_one_that_did_not(make_run):
    folders = [make_run(n, label=n, rounds=9, status="diverged") for n in "ab"]
    assert answer(*folders).sentence == "All 2 methods diverged."
    assert answer(*folders, make_run("c", label="c")).sentence == (
        "c reaches 90.0% after 20 rounds and 600 kB; 2 other methods have no result."
    )


def test_every_data_set_has_a_sentence_of_its_own(make_run, tmp_path):
    folders = [make_run("a", label="a"), make_run("b", label="b", algorithm="zhang", up=20_000)]
    folders += [make_run("c", label="a", dataset="cifar10", accuracy=0.6)]
    write_page(load_runs(folders), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8").partition("<nav")[0]
    assert "<h2>CIFAR-10</h2>" in text
    assert "a reaches 60.0% after 20 rounds and 600 kB." in text
    assert "a reaches 89.0% after 600 kB, 2.0× fewer bytes than b, the next method to get there." in text
    assert "<h1>test on CIFAR-10, MNIST</h1>" in text


def test_bytes_that_are_not_known_are_not_spoken_of(make_run):
    def bare(line):
        return {key: value for key, value in line.items() if "bytes" not in key}

    folders = [rewrite(make_run(n, label=n, accuracy=a), bare) for n, a in (("a", 0.9), ("b", 0.8))]
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps(bare(summary)))
    assert answer(*folders).sentence == "a ends with the best accuracy, 90.0%."
