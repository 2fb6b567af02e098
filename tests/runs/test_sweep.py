"""Sweeps: which runs they consist of, and how those come out, in this process and in others."""

import csv
import os
import tomllib
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
import torch

from fedcef.core.errors import ConfigError, RunError
from fedcef.runs import workers
from fedcef.runs.folder import RunFolder
from fedcef.runs.sweep import Outcome, Planned, attempt, one_by_one, plan, split, status, write_summary
from fedcef.runs.workers import side_by_side

SETTINGS = """
name = "tiny"
rounds = 4
num_clients = 3
local_steps = 2
local_lr = 0.01
snapshot_every = 2

[data]
name = "lasso"
dim = 20
samples = 10
support = 4

[compressor]
name = "topk"
ratio = 0.1
"""
VARIANTS = """
[[compare]]
label = "FedCEF"
set = { "algorithm.mixing" = 0.5 }

[[compare]]
label = "Zhang et al."
set = { "algorithm.name" = "zhang", "compressor.name" = "identity" }
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS)
    return str(path)


@pytest.fixture
def variants(tmp_path):
    path = tmp_path / "variants.toml"
    path.write_text(SETTINGS + VARIANTS)
    return str(path)


def placed(runs, out):
    return [replace(planned, path=out / planned.path) for planned in runs]


def unwatched(config):
    @contextmanager
    def watching():
        yield lambda record: None

    return watching()


# Which runs there are


def test_the_last_list_varies_fastest_and_seeds_are_not_in_the_label(tiny):
    runs = plan([tiny], ["seed=[3,5]", "rounds=2", "local_lr=[0.03,0.06]"])
    assert [(r.config.seed, r.config.local_lr) for r in runs] == [(3, 0.03), (3, 0.06), (5, 0.03), (5, 0.06)]
    assert [r.config.label for r in runs[:2]] == ["tiny, local_lr=0.03", "tiny, local_lr=0.06"]
    assert runs[0].config.label == runs[2].config.label
    assert runs[0].name == "tiny, local_lr=0.03, seed=3"
    assert [r.path.as_posix() for r in runs] == [
        "tiny__local_lr=0.03__seed=3",
        "tiny__local_lr=0.06__seed=3",
        "tiny__local_lr=0.03__seed=5",
        "tiny__local_lr=0.06__seed=5",
    ]
    assert all(r.config.rounds == 2 and not r.config.compare for r in runs)
    assert runs[1].swept == {"seed": 3, "local_lr": 0.06}


def test_variants_come_first_and_swept_values_lie_on_top_of_their_changes(variants):
    runs = plan([variants], ["seed=[0,1]", "algorithm.mixing=[0.9]"], only=["FedCEF"])
    assert [r.config.label for r in runs] == ["FedCEF, algorithm.mixing=0.9"] * 2
    assert [r.config.algorithm["mixing"] for r in runs] == [0.9, 0.9]
    both = plan([variants], ["seed=[0,1]"])
    assert [r.path.name for r in both] == [
        "fedcef__seed=0",
        "fedcef__seed=1",
        "zhang_et_al.__seed=0",
        "zhang_et_al.__seed=1",
    ]
    # another algorithm takes the place of the variant's, whose options go with it
    assert [p.config.label for p in plan([variants], [], only=["zhang"])] == ["Zhang et al."]  # a part will do
    named = plan([variants], ["algorithm.name=['scafcom']"], only=["FedCEF"])
    assert named[0].config.algorithm == {"name": "scafcom"}


def test_a_list_of_lists_sweeps_over_lists(tiny):
    runs = plan([tiny], ['regularizer.on=[["weight"],["w*","b*"]]'])
    assert [r.config.regularizer["on"] for r in runs] == [["weight"], ["w*", "b*"]]
    assert runs[1].config.label == 'tiny, regularizer.on=["w*", "b*"]'
    assert runs[0].path != runs[1].path


def test_folder_names_that_would_meet_get_a_number(tiny):
    runs = plan([tiny], ['device=["a b","a_b","A b"]'])
    assert [r.path.name for r in runs] == ["tiny__device=a_b", "tiny__device=a_b-2", "tiny__device=a_b-3"]
    (long,) = plan([tiny], [f'device=["{"x" * 400}"]'])
    assert len(long.path.name) < 255


def test_several_experiments_have_sub_folders(tiny, variants):
    runs = plan([tiny, variants], ["name=same", "seed=[1]"])
    assert [r.path.as_posix() for r in runs] == [
        "same/same__seed=1",
        "same-2/fedcef__seed=1",
        "same-2/zhang_et_al.__seed=1",
    ]


def test_a_key_given_twice_has_its_last_value():
    assert split(["a=[1,2]", "b=1", "a=3"]) == (["a=3", "b=1"], {})
    assert split(["a=1", "a=[2,3]"]) == ([], {"a": [2, 3]})


@pytest.mark.parametrize(
    ("changes", "only", "says"),
    [
        ([], ["FedAvg"], "There is no variant 'FedAvg' to keep by --only; there are 'FedCEF', 'Zhang et al.'."),
        ([], ["e"], "2 variants have 'e' in their label to keep by --only; there are 'FedCEF', 'Zhang et al.'."),
        (["seed=[]"], [], r"--set seed=\[\] sweeps over nothing; give at least one value"),
        (["seed=[1,2,1]"], [], r"--set seed=\[1, 2, 1\] has a value twice"),
        (['label=["a","b"]'], [], "label cannot be swept"),
        (["local_lr=[0.1,-1]"], [], "local_lr is -1; it must be greater than 0"),
        (["sed=[0,1]"], [], "Did you mean seed"),
        (["seed"], [], "--set takes key=value"),
    ],
)
def test_mistakes_are_found_before_anything_runs(variants, changes, only, says):
    with pytest.raises(ConfigError, match=says):
        plan([variants], changes, only)


# How they come out


def test_an_interrupted_run_is_resumed_to_the_same_end(tiny, tmp_path):
    (whole,) = placed(plan([tiny], []), tmp_path / "whole")
    (cut,) = placed(plan([tiny], []), tmp_path / "cut")

    def interrupt(record):
        if record["round"] == 3:
            raise KeyboardInterrupt

    assert status(cut) == "new"
    with pytest.raises(KeyboardInterrupt):
        attempt(cut, interrupt)
    assert status(cut) == "interrupted"
    # settings are compared by what they say: an earlier version wrote them in another order, and knew fewer
    written = tomllib.loads(RunFolder(cut.path).config.read_text())
    del written["weighting"]
    RunFolder(cut.path).config.write_text(tomli_w.dumps(dict(reversed(written.items()))))
    assert status(cut) == "interrupted"
    RunFolder(cut.path).config.write_text(cut.config.to_toml())
    outcomes = list(one_by_one([whole, cut], unwatched))
    assert [outcome.status for outcome in outcomes] == ["finished", "finished"]
    assert status(cut) == "finished"
    assert RunFolder(cut.path).model.read_bytes() == RunFolder(whole.path).model.read_bytes()
    other = replace(cut, config=cut.config.model_copy(update={"rounds": 5}))
    with pytest.raises(ConfigError, match="holds a run with other settings; choose another --out"):
        status(other)


def test_what_goes_wrong_concerns_one_run(tiny, tmp_path, capsys):
    refused, diverged, broken = placed(plan([tiny], ["seed=[0,1,2]"]), tmp_path)
    refused = replace(refused, config=refused.config.model_copy(update={"algorithm": {"name": "fedcef", "mixing": 7}}))
    diverged = replace(diverged, config=diverged.config.model_copy(update={"local_lr": 1e38, "rounds": 50}))
    broken = replace(broken, config=broken.config.model_copy(update={"rounds": None}))
    outcomes = list(one_by_one([refused, diverged, broken], unwatched))
    assert [(o.status, o.exit_code) for o in outcomes] == [("failed", 2), ("diverged", 0), ("failed", 1)]
    assert "mixing is 7" in outcomes[0].sentence
    assert "diverged" in outcomes[1].sentence
    assert outcomes[2].sentence.startswith("TypeError: ")
    assert "Traceback" in capsys.readouterr().err  # a bug must not hide
    assert status(diverged) == "diverged"
    assert not refused.path.exists()

    write_summary(outcomes, tmp_path / "summary.csv")
    rows = list(csv.DictReader((tmp_path / "summary.csv").read_text().splitlines()))
    assert [(row["seed"], row["status"]) for row in rows] == [("0", "failed"), ("1", "diverged"), ("2", "failed")]
    assert rows[0]["wall_s"] == ""
    assert rows[1]["accuracy"] == ""
    assert int(rows[1]["wire_up_bytes"]) >= 0
    assert rows[1]["folder"] == "tiny__seed=1"
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match="folder cannot be written"):
        write_summary(outcomes, tmp_path / "folder")


class Deadly:
    """Ends the process that unpickles it, as one that runs out of memory is ended."""

    def __reduce__(self):
        return os._exit, (9,)


def test_a_process_that_dies_takes_only_its_run_with_it(tiny, tmp_path):
    good, bad = placed(plan([tiny], ["seed=[0,1]"]), tmp_path)
    bad = replace(bad, swept={"seed": Deadly()})
    outcomes = {o.planned.path: o for o in side_by_side([bad, good], 1, pytest.fail)}
    assert outcomes[good.path] == Outcome(good, "finished")
    assert outcomes[bad.path].status == "failed"
    assert "ended with 9" in outcomes[bad.path].sentence


def test_a_planned_run_without_swept_values_is_called_by_its_label(tiny):
    (planned,) = plan([tiny], [])
    assert planned == Planned(planned.config, Path("tiny"))
    assert planned.name == planned.config.label == "tiny"


@pytest.mark.parametrize("error", [EOFError, BrokenPipeError, ConnectionResetError])
@pytest.mark.parametrize("where", ["recv", "send"])
def test_a_worker_whose_connection_is_closed_ends_without_a_word(error, where, monkeypatch):
    """Ctrl-C closes it at any moment; a traceback was printed if that met a message on its way."""

    class Closing:
        def recv(self):
            return self.step("recv")

        def send(self, answer):
            return self.step("send")

        def step(self, name):
            if name == where:
                raise error
            return "work"

    monkeypatch.setattr(workers, "_end_with_parent", lambda: None)
    monkeypatch.setattr(workers, "attempt", lambda planned, watch: "outcome")
    workers._work(Closing(), torch.get_num_threads())
