import io

import pytest
from rich.console import Console
from rich.table import Table

from fedcef.report import load_runs
from fedcef.report.data.groups import group_runs
from fedcef.report.data.table import collect_results, make_table
from fedcef.report.data.units import format_number


def printed(view: Table) -> str:
    console = Console(width=100, file=io.StringIO(), force_terminal=False)
    console.print(view)
    return console.file.getvalue()


def test_cells_are_the_last_values(make_run):
    content = collect_results(group_runs(load_runs([make_run("a", up=1_000_000)])))
    assert [what for what, _ in content.headers][:2] == ["rounds", "accuracy"]
    assert {unit for what, unit in content.headers if "total" in what} == {"MB"}
    texts = [cell.text for cell in content.rows[0].cells]
    assert texts == ["20", "90.00", "0.0231", "25.00", "20.0", "40.0", "60.0", "140", "10.0"]


def test_the_best_accuracy_is_bold_and_ties_share_it(make_run):
    folders = [make_run(n, label=n, accuracy=a) for n, a in (("a", 0.8), ("b", 0.95), ("c", 0.950001))]
    content = collect_results(group_runs(load_runs(folders)))
    assert [row.cells[1].best for row in content.rows] == [False, True, True]


def test_seeds_give_mean_and_standard_deviation(make_run):
    folders = [make_run(f"s{s}", seed=s, accuracy=a) for s, a in enumerate((0.8, 0.9, 1.0))]
    (row,) = collect_results(group_runs(load_runs(folders))).rows
    assert row.remark == "3 seeds"
    assert (row.cells[1].text, row.cells[1].spread) == ("90.00", "10.00")
    assert row.cells[4].spread == ""  # equal byte counts


def test_diverged_and_unfinished_runs_say_so(make_run):
    folders = [
        make_run("d", label="d", rounds=9, status="diverged", accuracy=1.0),
        make_run("u", label="u", rounds=12, status=None, accuracy=0.5),
    ]
    diverged, unfinished = collect_results(group_runs(load_runs(folders))).rows
    assert [cell.text for cell in diverged.cells[:3]] == ["9/20", "diverged", "–"]
    assert unfinished.cells[0].text == "12/20"
    assert unfinished.remark == "unfinished"
    assert [row.cells[1].best for row in (diverged, unfinished)] == [False, True]


def test_problems_without_accuracy_show_the_objective_and_the_least_is_best(make_run):
    folders = [make_run("a", label="a", accuracy=None, rounds=10), make_run("b", label="b", accuracy=None)]
    content = collect_results(group_runs(load_runs(folders)))
    assert content.headers[1][0] == "objective"
    assert [row.cells[1].best for row in content.rows] == [False, True]


def test_fits_in_100_columns_and_labels_are_not_markup(make_run):
    label = "[bold red]a rather long label[/] of a method"
    folders = [make_run(f"s{s}", label=label, seed=s, accuracy=0.9 + s / 50, up=123_456_789) for s in range(3)]
    text = printed(make_table(load_runs(folders)))
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "[bold red]" in text
    assert "…" not in text
    assert "±2.00" in text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (1234.0, "1,234"), (12.34, "12.3"), (0.01234, "0.0123"), (float("nan"), "–")]
)
def test_amounts(value, text):
    assert format_number(value) == text


def test_data_sets_have_tables_of_their_own(make_run):
    folders = [
        make_run("a", dataset="mnist", accuracy=0.9),
        make_run("b", dataset="mnist", label="b", accuracy=0.8),
        make_run("c", dataset="lasso", accuracy=None),
    ]
    text = printed(make_table(load_runs(folders)))
    assert text.index("lasso") < text.index("objective") < text.index("MNIST") < text.index("90.00")
    assert "MNIST" not in printed(make_table(load_runs(folders[:2])))


def test_what_could_not_be_read_stands_below(make_run):
    folder = make_run("a")
    (folder / "facts.json").write_text('{"clients": ')
    text = printed(make_table(load_runs([folder])))
    assert "facts.jsoncannotbereadandisleftout" in "".join(text.split())  # lines may end anywhere in the path
