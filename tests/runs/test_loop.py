"""The one loop: what it tells its sinks, and that an interrupt loses nothing."""

import json
import signal

import pytest
import torch

from fedcef import FedCEF, Interrupted, Problem, TopK, run
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.runs.folder import RunFolder
from fedcef.runs.loop import Loop
from fedcef.runs.measures import Measuring
from fedcef.runs.sinks import FolderSink, MemorySink, Sink
from fedcef.simulation.arrival import Arrival
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.01), num_clients=4, samples=20, dim=300, support=20)
OPTIONS = {"rounds": 12, "eval_every": 3, "batch_size": 5, "seed": 2}


def method():
    return FedCEF(local_lr=1e-3, local_steps=2, compressor=TopK(ratio=0.05))


def without_time(records):
    return [{name: value for name, value in record.items() if name != "wall_s"} for record in records]


def interrupt_in(round_):
    def watch(record):
        if record.get("round") == round_:
            raise KeyboardInterrupt

    return watch


def test_memory_records_what_a_folder_records(tmp_path):
    budget = {"budget": 12_000, **OPTIONS}
    here, there = run(PROBLEM, method(), **budget), run(PROBLEM, method(), **budget, out=tmp_path / "run")
    assert without_time(here) == without_time(there)
    assert {"control_gap", "up_ratio", "down_ratio", "wall_s"} <= set(here.measures)
    assert here.notes == there.notes
    assert any("to fit the budget" in note for note in here.notes)


def test_an_interrupted_run_goes_on_from_its_last_round(tmp_path):
    """Without a snapshot on Ctrl-C all rounds since the last one were lost."""
    folder, seldom = tmp_path / "run", {"snapshot_every": 100, **OPTIONS}
    whole = run(PROBLEM, method(), **seldom)
    with pytest.raises(KeyboardInterrupt):
        run(PROBLEM, method(), **seldom, out=folder, watch=interrupt_in(6))
    round_, _ = RunFolder(folder).read_snapshot()
    assert round_ == 6
    lines = (folder / "rounds.jsonl").read_bytes()
    again = run(PROBLEM, method(), **seldom, out=folder, resume=True)
    assert (folder / "rounds.jsonl").read_bytes().startswith(lines)
    assert without_time(again) == without_time(whole)
    assert torch.equal(again.parameters["weight"], whole.parameters["weight"])


def test_a_budget_goes_on_where_it_was(tmp_path):
    options = {"budget": 12_000, "snapshot_every": 100, **OPTIONS}
    whole = run(PROBLEM, method(), **options)
    with pytest.raises(KeyboardInterrupt):
        run(PROBLEM, method(), **options, out=tmp_path, watch=interrupt_in(9))
    assert without_time(run(PROBLEM, method(), **options, out=tmp_path, resume=True)) == without_time(whole)


def test_an_interrupt_in_an_evaluation_does_not_lose_its_record(tmp_path, monkeypatch):
    whole = run(PROBLEM, method(), **OPTIONS)
    real = Measuring.of

    def slow(self, simulation, *, all_samples):
        if simulation.round == 6:
            raise KeyboardInterrupt
        return real(self, simulation, all_samples=all_samples)

    monkeypatch.setattr(Measuring, "of", slow)
    with pytest.raises(KeyboardInterrupt):
        run(PROBLEM, method(), **OPTIONS, out=tmp_path)
    monkeypatch.setattr(Measuring, "of", real)
    assert without_time(run(PROBLEM, method(), **OPTIONS, out=tmp_path, resume=True)) == without_time(whole)


def test_an_interrupt_while_numbers_are_waited_for_does_not_lose_their_round(monkeypatch):
    """A GPU is waited for; once the round was taken off the queue first, and then forgotten."""
    real, calls = Arrival.get, []

    def get(self):
        calls.append(self)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return real(self)

    monkeypatch.setattr(Arrival, "get", get)
    with pytest.raises(Interrupted) as stop:
        run(PROBLEM, method(), **{**OPTIONS, "eval_every": 1})
    played = [record["round"] for record in stop.value.history]
    assert played == list(range(len(played)))
    assert torch.equal(
        stop.value.history.parameters["weight"],
        run(PROBLEM, method(), **{**OPTIONS, "rounds": played[-1]}).parameters["weight"],
    )


def test_a_signal_while_a_round_is_written_down_waits_for_its_end(tmp_path, monkeypatch):
    real = FolderSink.message

    def message(self, round_, down):
        if round_ == 4:
            signal.raise_signal(signal.SIGINT)
        return real(self, round_, down)

    monkeypatch.setattr(FolderSink, "message", message)
    with pytest.raises(KeyboardInterrupt):
        run(PROBLEM, method(), **OPTIONS, out=tmp_path)
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [0, 1, 2, 3, 4, 5]


def test_an_interrupt_in_memory_gives_the_history_so_far():
    with pytest.raises(Interrupted) as stop:
        run(PROBLEM, method(), **OPTIONS, watch=interrupt_in(6))
    assert [record["round"] for record in stop.value.history] == [0, 3, 6]
    assert stop.value.history.parameters["weight"].shape == (300,)
    assert isinstance(stop.value, KeyboardInterrupt)


def test_any_sink_will_do():
    class Counting(Sink):
        keeps_rounds = True

        def __init__(self):
            self.told = []

        def record(self, record):
            self.told.append(("record", record["round"]))

        def note(self, round_, sentence):
            self.told.append(("note", round_))

        def message(self, round_, down):
            self.told.append(("message", round_, *down))
            return "strange" if round_ == 1 else ""

        def snapshot(self, round_, tensors):
            self.told.append(("snapshot", round_, sorted(tensors)[:2]))

    simulation = Simulation(PROBLEM, method(), rounds=3, batch_size=5, snapshot_every=2)
    sink = Counting()
    Loop(simulation, Measuring(PROBLEM, 0.1, simulation.training), sink).to_the_end()
    assert sink.told == [
        ("record", 0),
        ("message", 0, "increment"),
        ("record", 1),
        ("message", 1, "increment"),
        ("note", 1),
        ("record", 2),
        ("snapshot", 2, ["clients/c_i", "clients/v_i"]),
        ("message", 2, "increment"),
        ("record", 3),
        ("snapshot", 3, ["clients/c_i", "clients/v_i"]),
    ]


def test_a_memory_sink_keeps_evaluated_rounds_only():
    sink = MemorySink()
    for record in ({"round": 0, "objective": 1.0}, {"round": 1}, {"round": 2, "objective": 0.5}):
        sink.record(record)
    assert [record["round"] for record in sink.records] == [0, 2]


def test_a_loss_that_is_no_number_from_the_start_is_told():
    inputs, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    clients = [(inputs, labels), (inputs, torch.full((6,), -100))]
    problem = Problem.build(torch.nn.Linear(4, 3), torch.nn.functional.cross_entropy, clients)
    notes = run(problem, FedCEF(local_lr=0.1), rounds=2, batch_size=4).notes
    assert [note for note in notes if "the loss ignores all of its labels; leave such clients out" in note] == [
        notes[0]
    ]
    assert not run(PROBLEM, method(), **OPTIONS).notes
