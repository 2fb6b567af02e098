"""Runs split over processes: what each of them holds, writes and says is what one process would."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch.multiprocessing import spawn

from fedcef.core.round import POPULATION, Rounds
from fedcef.core.training import StoreOptions, Training
from fedcef.simulation.stores import Store, Touched
from fedcef.simulation.workers.scattered import ScatteredStates

from .members import METHODS, STORES, member, played, run


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


@pytest.mark.parametrize("store", STORES)
def test_a_snapshot_costs_what_has_changed(seen, store, tmp_path):
    """Rows of two rounds' cohorts at each snapshot, in the file that one process would have written."""
    alone = run(tmp_path / "alone", store=STORES[store])
    first, second = seen[0][2]
    assert without_time(first[store]) == without_time(second[store]) == without_time(alone.records)
    rounds = Rounds(Training(clients_per_round=5), 11)
    cohorts = [rounds.cohort(t).tolist() for t in range(6)]
    if store != "disk":  # where each process also writes the rows that it works on
        due = [sorted({*cohorts[t], *cohorts[t + 1]}) for t in (0, 2, 4)]
        written = first[f"{store}, written"]
        assert [sorted(some + more) for some, more in zip(written[::2], written[1::2], strict=True)] == due
        assert not second[f"{store}, written"]
        one, several = (folder / "client_states.0.bin" for folder in (tmp_path / "alone", seen[1] / store))
        assert several.read_bytes() == one.read_bytes()


@pytest.mark.parametrize("store", STORES)
def test_states_in_a_file_go_on_in_several_processes_or_in_one(seen, store):
    for one in seen[0][2]:
        assert without_time(one[f"{store}, gone on"]) == without_time(one[store])
    history = run(seen[1] / f"{store}, left", store=STORES[store], resume=True)
    assert without_time(history.records) == without_time(seen[0][2][0][store])
    models = [(seen[1] / name / "model.safetensors").read_bytes() for name in (store, f"{store}, interrupted")]
    assert models[0] == models[1] == (seen[1] / f"{store}, left" / "model.safetensors").read_bytes()


def test_parts_are_of_one_kind_whatever_their_sizes():
    """16,384 clients would have a table by themselves, and 16,385 would not."""
    store, kinds = Store(StoreOptions(), everyone=False), set()
    for rank in (0, 1):
        team = SimpleNamespace(rank=rank, size=2, is_first=rank == 0)
        kinds.add(type(ScatteredStates(team, store).start({"c_i": torch.zeros(2)}, 2 * POPULATION + 1).mine))
    assert kinds == {Touched}
