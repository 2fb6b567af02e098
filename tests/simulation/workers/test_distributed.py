"""Runs split over processes: what each of them holds, writes and says is what one process would."""

import json

import pytest
import torch
from torch.multiprocessing import spawn

from .members import METHODS, member, played, run


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """By the number of processes, what each saw; and the folder they wrote to."""
    folder = tmp_path_factory.mktemp("processes")
    found = {}
    for size in (2, 4):
        spawn(member, (size, str(folder)), nprocs=size)
        found[size] = [torch.load(folder / f"seen-{size}-{rank}.pt", weights_only=False) for rank in range(size)]
    return found, folder


def records(folder):
    """All records of a run but how long it took."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall_s"} for line in lines]


def without_time(history):
    return [{name: value for name, value in record.items() if name != "wall_s"} for record in history]


@pytest.mark.parametrize("name", METHODS)
def test_four_processes_hold_what_one_holds(seen, name):
    alone, processes = played(name), [one["played"][name] for one in seen[0][4]]
    for rank, theirs in enumerate(processes):
        assert theirs["totals"] == alone["totals"]
        assert theirs["finite"] == alone["finite"]
        assert theirs["scalars"] == alone["scalars"]
        for part, state in alone["parts"].items():
            if part != "clients" or rank == 0:
                assert state.keys() == theirs["parts"][part].keys()
                assert all(torch.equal(tensor, theirs["parts"][part][key]) for key, tensor in state.items())


def test_two_processes_write_the_folder_of_one(seen, tmp_path):
    alone = run(tmp_path / "alone")
    first, second = seen[0][2]
    for one in (first, second):
        assert without_time(one["records"]) == without_time(one["in memory"]) == without_time(alone.records)
    assert first["watched"]
    assert not second["watched"]
    folder = seen[1] / "whole"
    assert records(folder) == records(tmp_path / "alone")
    for name in ("config.toml", "model.safetensors", "facts.json"):
        assert (folder / name).read_bytes().replace(b"whole", b"alone") == (tmp_path / "alone" / name).read_bytes()
    assert {path.name for path in folder.iterdir()} == {path.name for path in (tmp_path / "alone").iterdir()}


def test_an_interrupt_in_one_ends_all_and_the_run_goes_on(seen):
    for one in seen[0][2]:
        assert one["interrupted"] == "KeyboardInterrupt: "
        assert without_time(one["gone on"]) == without_time(one["records"])
    assert records(seen[1] / "interrupted") == records(seen[1] / "whole")


def test_a_failure_in_one_is_told_once_and_ends_all(seen):
    first, second = seen[0][2]
    assert second["failed"] == "ConfigError: Something is wrong here."
    assert first["failed"] == "EndedElsewhere: Process 1 of 2 has failed: Something is wrong here."
    assert "workers is 'local', but there are 2 processes" in first["refused"]
    assert second["refused"].startswith("EndedElsewhere: ")
    assert not (seen[1] / "refused").exists()


def test_models_that_have_drifted_apart_are_noticed(seen):
    assert "processes 0 and 1 hold different models" in seen[0][2][0]["strayed"]
    assert seen[0][2][1]["strayed"].startswith("EndedElsewhere: ")


def test_what_several_processes_kept_one_goes_on_with(seen):
    """After a failure in round 3 there is the snapshot of round 2."""
    history = run(seen[1] / "failed", resume=True)
    assert without_time(history.records) == without_time(seen[0][2][0]["records"])
    assert records(seen[1] / "failed") == records(seen[1] / "whole")
