"""The column of what clients got because they were away: shown where there is any, 0 for runs that did not count it."""

import json

from fedcef.report.data.groups import group_runs
from fedcef.report.data.records import load_runs
from fedcef.report.data.table import collect_results


def counting(folder, caught_up):
    """The run as one in which so many of the bytes down were for clients that had been away."""
    path = folder / "rounds.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    lines = [{**line, "wire_catch_up_bytes": caught_up * line["round"], "paper_catch_up_bytes": 1} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    summary |= {name: lines[-1][name] for name in ("wire_catch_up_bytes", "paper_catch_up_bytes")}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def results(*folders):
    return collect_results(group_runs(load_runs(list(folders))))


def test_it_stands_beside_the_bytes_down_of_which_it_is_a_part(make_run):
    away = counting(make_run("a", up=1_000_000), 500_000)
    old = make_run("b", up=1_000_000)
    shown = results(away, old)
    titles = [title for title, _ in shown.headers]
    assert titles[4:9] == ["wire up", "wire down", "catch-up", "wire total", "paper total"]
    first, second = ([cell.text for cell in row.cells[4:8]] for row in shown.rows)
    up, down, caught_up, total = map(float, first)
    assert (down, caught_up, total) == (2 * up, up / 2, 3 * up)
    assert float(second[2]) == 0


def test_it_is_left_out_where_nobody_was_away(make_run):
    plain, zero = make_run("a", up=1000), counting(make_run("b", up=1000), 0)
    assert "catch-up" not in [title for title, _ in results(plain, zero).headers]
