"""Runs with every store: the same bits, resumed after any kill."""

import pytest
import torch

from fedcef.algorithms import FedCEF
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError, RunError
from fedcef.core.training import Training
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.client_states import Table
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.stores import Touched
from runs.setting import SETTINGS, Killed, run_in, without_time

PROBLEM = lasso(L1(0.05), num_clients=8, samples=30, dim=20, support=5)
EXACT = [(name, code) for name in ("memory", "host", "disk") for code in ("exact", "nonzeros")]


def simulation(name="auto", code="exact", folder=None, rounds=8, **options):
    method = FedCEF(
        local_lr=0.005, local_steps=3, regularizer=PROBLEM.regularizer, compressor=TopK(ratio=0.2), mixing=0.5
    )
    training = Training(
        batch_size=5, rounds=rounds, store={"name": name, "code": code}, **{"clients_per_round": 3, **options}
    )
    return Simulation(PROBLEM, method, training, folder=folder)


def after(run, rounds=8):
    for _ in range(rounds):
        run.step()
    return run


@pytest.mark.parametrize("participation", [3, 0])
@pytest.mark.parametrize(("name", "code"), EXACT)
def test_every_store_gives_the_same_run(name, code, participation, tmp_path):
    table = after(simulation("table", clients_per_round=participation))
    other = after(simulation(name, code, tmp_path, clients_per_round=participation))
    assert isinstance(table.state.clients, Table)
    assert isinstance(other.state.clients, Touched)
    assert torch.equal(table.model(), other.model())
    assert table.ledger.totals() == other.ledger.totals()
    everyone = torch.arange(8)
    for key, rows in table.state.clients.take(everyone).items():
        assert torch.equal(rows, other.state.clients.take(everyone)[key])
    assert table.diagnostics() == other.diagnostics()


def test_bfloat16_gives_another_run_that_ends_nearby(tmp_path):
    exact = after(simulation("memory"), 60)
    for name in ("memory", "disk"):
        rounded = after(simulation(name, "bfloat16", tmp_path / name), 60)
        assert not torch.equal(exact.model(), rounded.model())
        assert torch.allclose(exact.model(), rounded.model(), atol=0.05 * float(exact.model().abs().max()))


@pytest.mark.parametrize(("name", "code"), [("memory", "exact"), ("memory", "nonzeros"), ("disk", "exact")])
def test_parts_restore_a_simulation(name, code, tmp_path):
    whole = after(simulation(name, code, tmp_path / "whole"))
    first = after(simulation(name, code, tmp_path / "cut"), 5)
    parts = first.parts()
    after(first, 2)  # which nothing keeps
    second = simulation(name, code, tmp_path / "cut")
    second.restore(5, parts)
    assert torch.equal(after(second, 3).model(), whole.model())


def test_a_run_without_a_folder_uses_a_passing_one():
    disk = after(simulation("disk"))
    assert torch.equal(disk.model(), after(simulation("table")).model())


def test_rounds_of_a_budget_are_played_again_from_older_values(tmp_path):
    """A budget tries a round, looks at its bytes, and plays it once more from the state before."""
    runs = [after(simulation(name, folder=tmp_path, budget="2kB")) for name in ("table", "memory", "disk")]
    assert runs[0].ratios() != simulation("table", budget="2kB").ratios()
    for run in runs[1:]:
        assert torch.equal(run.model(), runs[0].model())
        assert run.ledger.totals() == runs[0].ledger.totals()


@pytest.mark.parametrize("stop_after", [2, 5])
@pytest.mark.parametrize(("name", "code"), [("memory", "exact"), ("disk", "exact"), ("disk", "nonzeros")])
def test_resuming_equals_not_stopping(tmp_path, name, code, stop_after):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS)
    changes = ["clients_per_round=2", f"store.name={name}", f"store.code={code}"]
    run_in(tmp_path / "table", str(path), "clients_per_round=2")
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", str(path), *changes, stop_after=stop_after)
    run_in(tmp_path / "cut", str(path), *changes)
    assert without_time(tmp_path / "cut") == without_time(tmp_path / "table")
    model = "model.safetensors"
    assert (tmp_path / "cut" / model).read_bytes() == (tmp_path / "table" / model).read_bytes()


def test_a_lost_file_is_told_in_a_sentence(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS)
    changes = ["clients_per_round=2", "store.name=disk"]
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", str(path), *changes, stop_after=5)
    (tmp_path / "cut" / "client_states.0.bin").unlink()
    with pytest.raises(RunError, match=r"client_states\.0\.bin is missing or shorter than the snapshot says"):
        run_in(tmp_path / "cut", str(path), *changes)


@pytest.mark.parametrize(
    ("store", "sentence"),
    [
        ({"name": "tape"}, "store.name"),
        ({"code": "zip"}, "store.code"),
        ({"limit": "much"}, "store.limit"),
        ({"name": "table", "code": "bfloat16"}, "A table keeps every number as it is; with"),
        ({"name": "memory", "limit": "1MB"}, "store.limit is for rows on a disk"),
    ],
)
def test_mistakes_in_the_section(store, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Training(store=store)


@pytest.mark.parametrize(("name", "code"), [("memory", "nonzeros"), ("memory", "bfloat16")])
def test_a_journal_is_written_in_the_store_s_code(name, code, tmp_path):
    run = after(simulation(name, code, tmp_path), 3)
    run.parts()
    rows, everyone = run.state.clients, torch.arange(8)
    exact = len(rows.touched()) * 20 * 4
    assert (tmp_path / "client_states.0.bin").stat().st_size < exact
    other = simulation(name, code, tmp_path)
    other.restore(3, run.parts())
    for key, table in rows.take(everyone).items():
        assert torch.equal(table, other.state.clients.take(everyone)[key])


def test_a_table_takes_rows_of_those_seen():
    """A run that was begun on a host may go on where all rows are in one table."""
    seen = after(simulation("memory"), 3)
    table = simulation("table")
    table.restore(3, seen.parts())
    assert torch.equal(after(table, 3).model(), after(seen, 3).model())


def test_a_gap_is_taken_over_the_clients_that_are_looked_at(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS)
    summary = run_in(tmp_path / "run", str(path), "eval.optimum=true", "eval.clients=2", "batch_size=0", "rounds=3")
    assert summary["gap"] >= -1e-9
