"""compressor auto sends messages that stand alone where clients are away for long, unless a downlink is asked for."""

from contextlib import suppress

import pytest
import torch

from fedcef import FedCEF, Problem, run
from fedcef.algorithms import EF21PP, SCAFCOM, FedPAQ
from fedcef.compressors import Auto, TopK
from fedcef.core.errors import RunError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.report.data.frontier import find_frontier
from fedcef.report.data.records import load_runs
from fedcef.simulation import downlink as downlinks
from fedcef.simulation.downlink import CONTROL, with_downlink
from fedcef.simulation.simulation import Simulation

DIM, COHORT, ROUNDS = 1000, 30, 200
ALONE = ROUNDS * COHORT * DIM / 8  # bytes of a bit for each parameter


def chosen(clients=3000, budget=10**9, kind=FedCEF, **options):
    training = Training(rounds=ROUNDS, clients_per_round=COHORT, budget=budget)
    rounds = Rounds(training, clients)
    algorithm = kind(compressor=Auto(), **options).for_share(rounds.share)
    found = with_downlink(algorithm, rounds, DIM)
    return (found.downlink, found.model_bits) if kind is FedCEF else found is algorithm


@pytest.mark.parametrize(
    ("clients", "downlink"), [(30, "increment"), (300, "increment"), (900, "increment"), (901, "snapshot")]
)
def test_it_goes_by_how_long_clients_are_away(clients, downlink):
    assert chosen(clients)[0] == downlink


def test_what_was_asked_for_by_name_stays():
    assert chosen(downlink="lossy")[0] == "lossy"
    assert chosen(downlink="snapshot", model_bits=3) == ("snapshot", 3)
    assert chosen(downlink="dense")[0] == "snapshot"  # auto never sends dense messages


@pytest.mark.parametrize("options", [{"metric": "adam"}], ids=str)
def test_options_that_need_every_message_keep_the_log(options):
    assert chosen(**options)[0] == "increment"


@pytest.mark.parametrize(
    ("budget", "bits"), [(0, 2), (1.5, 1), (2, 1), (4.7, 1), (4.9, 2), (8.7, 2), (8.9, 4), (100, 4)]
)
def test_a_model_has_as_many_bits_as_half_of_the_budget_has_room_for(budget, bits):
    assert chosen(budget=round(budget * ALONE)) == ("snapshot", bits)


def test_a_budget_that_cannot_pay_a_bit_in_every_round_keeps_the_log_unless_the_run_may_end_early():
    budget = round(1.3 * ALONE)
    assert chosen(budget=budget)[0] == "increment"
    assert chosen(clients=30_000, budget=budget) == ("snapshot", 1)  # most take part once at most


def test_a_budget_that_a_log_keeps_is_kept():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 4000, generator=generator)
    targets = (inputs @ torch.randn(4000, 8, generator=generator)).argmax(1)
    clients = [(inputs[i::100], targets[i::100]) for i in range(100)]
    torch.manual_seed(0)
    problem = Problem.build(torch.nn.Linear(4000, 8), torch.nn.functional.cross_entropy, clients)
    options = {"rounds": 60, "clients_per_round": 2, "batch_size": 4, "eval_every": 60}
    budget = 550_000  # a bit takes 480,120 bytes
    last = run(problem, METHOD, compressor="auto", budget=budget, **options).last
    assert last["wire_up_bytes"] + last["wire_down_bytes"] <= budget


@pytest.mark.parametrize("kind", [FedPAQ, EF21PP, SCAFCOM])
def test_methods_with_one_downlink_keep_it(kind):
    assert chosen(kind=kind)


OPTIONS = {"rounds": 40, "budget": 150_000, "clients_per_round": 10, "batch_size": 4}
METHOD = FedCEF(local_lr=0.1, local_steps=2, mixing=0.5)


def test_a_run_takes_it_and_says_so(problem, tmp_path):
    method = FedCEF(local_lr=0.1, local_steps=2, mixing=0.5, compressor=Auto())
    run_ = Simulation(problem, method, **OPTIONS)
    assert run_.algorithm.downlink == "snapshot"
    assert run_.algorithm.down_compressor is CONTROL
    history = run(problem, METHOD, compressor="auto", **OPTIONS, eval_every=40, out=tmp_path / "run")
    (said,) = {note.split(",")[1] for note in history.notes if note.startswith("compressor auto")}
    assert said == " snapshots of 4 bits down"
    again = run(problem, METHOD, compressor="auto", **OPTIONS, eval_every=40, out=tmp_path / "run", resume=True)
    assert again["accuracy"] == history["accuracy"]
    whole = FedCEF(
        local_lr=0.1, local_steps=2, mixing=0.5, downlink="snapshot", model_bits=4, index_code="context",
        down_compressor=TopK(ratio=0.05, values="sign"),
    )  # fmt: skip
    named = run(problem, whole, compressor="auto", **OPTIONS, eval_every=40)
    assert named["accuracy"] == history["accuracy"]
    assert named["wire_down_bytes"] == history["wire_down_bytes"]


def test_a_folder_that_was_begun_with_a_log_is_refused_in_a_sentence(problem, tmp_path, monkeypatch):
    """As by versions that sent one whatever the absence."""

    def go(**options):
        def stop(record):
            if record.get("round") == 8:
                raise KeyboardInterrupt

        return run(
            problem, METHOD, compressor="auto", **OPTIONS, eval_every=8, out=tmp_path / "run", **options, watch=stop
        )

    with monkeypatch.context() as earlier, suppress(KeyboardInterrupt):
        earlier.setattr(downlinks, "ABSENCE", float("inf"))
        go()
    with pytest.raises(RunError, match=r"differs; go on with the version of fedcef that began the run, restore the fo"):
        go(resume=True)


def test_restored_in_the_middle_it_goes_on_the_same(problem):
    method = FedCEF(local_lr=0.1, local_steps=2, mixing=0.5, compressor=Auto())
    whole, first, second = (Simulation(problem, method, **OPTIONS) for _ in range(3))
    for _ in range(12):
        whole.step()
    for _ in range(5):
        first.step()
    second.restore(first.round, first.parts())
    for _ in range(7):
        second.step()
    assert torch.equal(second.model(), whole.model())
    assert second.ledger.totals() == whole.ledger.totals()


@pytest.mark.parametrize(
    ("downlink", "family"), [("increment", "snapshot"), ("lossy", "lossy"), ("snapshot", "snapshot")]
)
def test_a_frontier_calls_it_what_it_is(problem, tmp_path, downlink, family):
    method = FedCEF(local_lr=0.1, local_steps=2, mixing=0.5, downlink=downlink)
    run(problem, method, compressor="auto", **OPTIONS, eval_every=40, out=tmp_path / "run")
    (point,) = find_frontier(load_runs([tmp_path / "run"])).points
    assert point.downlink == family
