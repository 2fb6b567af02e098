"""A deployed run without faults is the simulated one, bit for bit: replicas, client states and counted bytes."""

import pytest

from fedcef.deployment import one_client
from fedcef.deployment.messages import OVERHEAD, RESULT_OVERHEAD
from fedcef.oracles.loop import ClientLoop
from fedcef.oracles.oracle import make_oracle
from fedcef.report.data.records import load_runs
from fedcef.runs.experiments import load_settings
from fedcef.simulation.evaluation import Evaluator

from .loopback import Loopback
from .setting import METHODS, equal, replayed, simulation, small_settings

DIGITS = {"data": {"name": "digits"}, "model": {"name": "softmax"}, "batch_size": 16}


def compare(settings, path):
    deployed, simulated = Loopback(settings, path), simulation(settings)
    for t in range(settings.rounds):
        deployed.play()
        simulated.step()
        assert equal(deployed.server.state.replica, simulated.replica), f"round {t}"
        assert equal(deployed.server.state.server, simulated.server), f"round {t}"
        counted = simulated.ledger.totals()
        assert {name: deployed.records[-1][name] for name in counted} == counted, f"round {t}"
    assert deployed.outcomes.keys() == {"accepted"}
    if simulated.clients:
        assert equal(deployed.table(), simulated.clients)
    return deployed


@pytest.mark.parametrize("method", METHODS)
def test_all_clients(tmp_path, method):
    compare(small_settings(method), tmp_path)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "zhang"])
def test_some_of_the_clients(tmp_path, method):
    compare(small_settings(method, clients_per_round=2), tmp_path)


@pytest.mark.parametrize("method", ["fedcef", "scaffold"])
def test_a_classifier(tmp_path, method):
    compare(small_settings(method, **DIGITS), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"local_schedule": {"name": "cosine"}, "server_schedule": {"name": "step", "every": 2}},
        {"weighting": "samples", **DIGITS},
        {"precision": "float64"},
        {"batch_size": 0},
        {"clip_norm": 0.5},
        {"snapshot_every": 0},
        {**DIGITS, "batches": "epochs", "weighting": "samples"},
        {**DIGITS, "data": {"name": "digits", "partition": "drawn"}, "clients_per_round": 2},
    ],
    ids=["schedules", "weights", "float64", "full batches", "clipping", "no snapshots", "epochs", "drawn"],
)
def test_settings(tmp_path, changes):
    compare(small_settings("fedcef", **changes), tmp_path)


def test_unequal_clients_with_full_batches(tmp_path):
    """The simulator then goes client by client, and so does a client, although it has only its own samples."""
    data = {**DIGITS, "data": {"name": "digits", "partition": "dirichlet"}}
    settings = small_settings("fedcef", oracle="auto", **{**data, "batch_size": 0}, rounds=4)
    problem = settings.build_problem()
    for known in (problem, one_client(problem, 1)):
        assert isinstance(make_oracle(known, settings), ClientLoop)
    compare(settings, tmp_path)


def test_the_transport_carries_what_is_counted_and_the_envelopes(tmp_path):
    """Orders are envelopes around the frames that the ledger counts; the last is not sent."""
    settings = small_settings("fedcef", rounds=12, clients_per_round=2, snapshot_every=2)
    deployed, simulated = Loopback(settings, tmp_path), simulation(settings)
    down = 0
    for _ in range(settings.rounds):
        deployed.play()
        record = deployed.records[-1]
        messages = 2 * record["round"]
        assert record["transport_up_bytes"] == record["wire_up_bytes"] + messages * RESULT_OVERHEAD
        assert record["transport_down_bytes"] == down + messages * OVERHEAD
        simulated.step()
        down = simulated.ledger.totals()["wire_down_bytes"]


def test_the_reference_of_these_tests_is_the_simulator(tmp_path):
    settings = small_settings("fedcef lossy", clients_per_round=3)
    simulated = simulation(settings)
    history = [dict.fromkeys(simulated.engine.rounds.cohort(t).tolist(), False) for t in range(settings.rounds)]
    for _ in history:
        simulated.step()
    reference = replayed(settings, history)
    assert equal(reference.replica, simulated.replica)
    assert equal(reference.clients, simulated.clients)


def test_the_folder_is_a_run_folder(tmp_path):
    settings = small_settings("fedcef", label="deployed")
    deployed = Loopback(settings, tmp_path).run()
    summary = deployed.server.finish()
    (run,) = load_runs([tmp_path / "server"])
    assert run.status == "finished"
    assert run.label == "deployed"
    assert run.last_round == summary["rounds"] == 9
    assert list(run.rounds["accepted"]) == [0.0] + 9 * [5.0]
    assert load_settings(str(tmp_path / "server" / "config.toml")).algorithm["mixing"] == 0.5


def test_measures_are_recorded_in_evaluated_rounds(tmp_path):
    settings = small_settings("fedcef", eval={"every": 4})
    evaluator = Evaluator(settings.build_problem(), 0.03)
    deployed = Loopback(settings, tmp_path, evaluate=evaluator).run()
    records = deployed.server.state.folder.records()
    assert [record["round"] for record in records if "objective" in record] == [0, 4, 8, 9]
    simulated = simulation(settings)
    for _ in range(settings.rounds):
        simulated.step()
    assert records[-1]["objective"] == evaluator(simulated.model())["objective"]
