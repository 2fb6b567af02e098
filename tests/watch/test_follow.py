"""A run folder is followed line by line, whatever happens to its files."""

import json

import pytest

from fedcef.core.errors import RunError
from fedcef.watch.follow import Followed
from fedcef.watch.live import Watched

from .setting import Growing, line


class Heard:
    def __init__(self):
        self.rounds, self.ends = [], []

    def record(self, record):
        self.rounds.append(record["round"])

    def finish(self, *, over):
        self.ends.append(over)


def test_every_round_is_read_once(tmp_path):
    run, heard = Growing(tmp_path / "run"), Heard()
    followed = Followed(run.folder, heard)
    followed.update()
    assert (followed.status, followed.round, followed.rounds) == ("waiting", 0, 20)
    run.rounds(0, 1)
    followed.update()
    run.rounds(2)
    followed.update()
    followed.update()
    assert heard.rounds == [0, 1, 2]
    assert followed.status == "running"
    assert followed.records == [line(0), line(1), line(2)]


def test_a_half_written_line_waits_for_its_end(tmp_path):
    run = Growing(tmp_path / "run").rounds(0)
    text = json.dumps(line(1, label="φ")) + "\n"
    for cut in range(1, len(text)):
        followed = Followed(run.folder)
        run.write(text[:cut])
        followed.update()
        assert followed.round == 0
        run.write(text[cut:])
        followed.update()
        assert followed.round == 1
        (run.folder / "rounds.jsonl").write_text(json.dumps(line(0)) + "\n")


def test_a_file_that_is_cut_or_replaced_is_read_anew(tmp_path):
    run, heard = Growing(tmp_path / "run").rounds(0, 1, 2, 3), Heard()
    followed = Followed(run.folder, heard)
    followed.update()
    part = run.folder / "part"  # a resume puts a new file in place, cut back to the snapshot
    part.write_text("".join(json.dumps(line(t)) + "\n" for t in (0, 1, 2)))
    part.replace(run.folder / "rounds.jsonl")
    run.rounds(3, 4)  # by then it is as long as the old one
    followed.update()
    assert [record["round"] for record in followed.records] == [0, 1, 2, 3, 4]
    (run.folder / "rounds.jsonl").write_text(json.dumps(line(0)) + "\n")
    followed.update()
    assert [record["round"] for record in followed.records] == [0]


def test_lines_that_are_no_records_are_left_out(tmp_path):
    run = Growing(tmp_path / "run").rounds(0)
    run.write('{"round": 1, "acc\n[1, 2]\nnull\n{"note": "x"}\n{"round": "2"}\n\xff\n')
    run.rounds(2)
    followed = Followed(run.folder)
    followed.update()
    assert [record["round"] for record in followed.records] == [0, 2]


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    run = Growing(tmp_path / "run").rounds(0, 2)
    run.rounds(4, accuracy=None)
    run.rounds(6, accuracy=float("nan"))
    followed = Followed(run.folder)
    followed.update()
    assert followed.column("accuracy") == [0.0, 0.09]
    assert followed.last("nothing") is None


def test_pace_and_time_left(tmp_path):
    run = Growing(tmp_path / "run").rounds(0)
    followed = Followed(run.folder)
    followed.update()
    assert followed.pace is None
    assert followed.left_s is None
    run.rounds(*range(1, 11))
    followed.update()
    assert followed.pace == pytest.approx(2.0)
    assert followed.left_s == pytest.approx(5.0)
    run.end()
    followed.update()
    assert followed.over
    assert followed.left_s is None


def test_notes_of_the_run_and_of_a_server(tmp_path):
    run = Growing(tmp_path / "run").rounds(0)
    note = {"round": 3, "note": "Round 3: the ratio is now 0.02, to fit the budget."}
    (run.folder / "notes.jsonl").write_text(2 * (json.dumps(note) + "\n"))  # twice: a resumed run says it again
    refused = {"round": 4, "client": 2, "identity": "ab", "reason": "late", "detail": "…"}
    stranger = refused | {"client": None, "identity": "cd"}
    (run.folder / "refused.jsonl").write_text(json.dumps(refused) + "\n" + json.dumps(stranger) + "\n")
    followed = Followed(run.folder)
    followed.update()
    assert followed.notes == [
        "Round 3: the ratio is now 0.02, to fit the budget.",
        "Round 4: the reply of client 2 was refused (late).",
        "Round 4: the reply of cd was refused (late).",
    ]


def test_a_sweep_is_followed_also_to_runs_that_begin_later(tmp_path):
    heard = {}
    first = Growing(tmp_path / "out" / "a").rounds(0)
    watched = Watched(tmp_path / "out", lambda folder: heard.setdefault(folder.name, Heard()))
    first.rounds(1).end()
    watched.update()
    assert [run.over for run in watched.runs] == [True]
    assert not watched.over  # another run may begin
    second = Growing(tmp_path / "out" / "b").rounds(0)
    watched.update()
    assert [run.path.name for run in watched.runs] == ["a", "b"]
    second.end()
    (tmp_path / "out" / "summary.csv").write_text("label\n")
    watched.update()
    watched.close()
    assert watched.over
    assert {name: (one.rounds, one.ends) for name, one in heard.items()} == {
        "a": ([0, 1], [True]),
        "b": ([0], [True]),
    }


def test_a_sweep_with_a_failed_run_ends_with_its_table(tmp_path):
    Growing(tmp_path / "out" / "a").rounds(0).end()
    Growing(tmp_path / "out" / "b").rounds(0)
    watched = Watched(tmp_path / "out")
    assert not watched.over
    (tmp_path / "out" / "summary.csv").write_text("label\n")
    assert watched.over


def test_a_run_that_is_not_over_is_left_as_such(tmp_path):
    heard = Heard()
    Watched(Growing(tmp_path / "run").rounds(0).folder, lambda folder: heard).close()
    assert heard.ends == [False]


@pytest.mark.parametrize(("name", "says"), [("none", "is not there yet"), ("", "holds no run yet")])
def test_a_run_that_does_not_exist(tmp_path, name, says):
    with pytest.raises(RunError, match=f"{says}; start one with `fedcef run EXPERIMENT --out"):
        Watched(tmp_path / name)


def test_settings_that_cannot_be_read(tmp_path):
    run = Growing(tmp_path / "run")
    (run.folder / "config.toml").write_text("rounds = ")
    (followed,) = Watched(run.rounds(0, 1).folder).runs
    assert followed.round == 1
    assert followed.notes[0].startswith(f"{run.folder / 'config.toml'} cannot be read and is left out")
