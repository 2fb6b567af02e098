"""After how many rounds a run with a budget ends by itself: only where most clients take part once at most."""

from dataclasses import replace

import pytest
import torch

from fedcef import FedCEF, run
from fedcef.algorithms import FedPAQ
from fedcef.compressors import Auto, TopK
from fedcef.core.round import Rounds, rehearsal_key
from fedcef.core.schedules import Cosine
from fedcef.core.training import Training
from fedcef.optimizers import AdamW
from fedcef.simulation.candidates import Candidate, Trial
from fedcef.simulation.choosing import cost, lag, soonest
from fedcef.simulation.planning import LEAST, efficient, longest, may_end_early, numbers
from fedcef.simulation.rehearsal import rehearsed_bytes
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.spending import Choice, Spending, Way

MANY, ROUNDS, BUDGET = 100_000, 60, 250_000


def method(**options):
    """With a log, which is asked for by name: left to itself, auto would send messages that stand alone."""
    chosen = {"local_lr": 0.1, "local_steps": 2, "mixing": 0.5, "compressor": Auto(), "downlink": "lossy"}
    return FedCEF(**{**chosen, **options})


def simulation(problem, **options):
    chosen = {"rounds": ROUNDS, "budget": BUDGET, "clients_per_round": 10, "batch_size": 4, **options}
    return Simulation(problem, method(), **chosen)


def played(run_, rounds=ROUNDS):
    notes = []
    while run_.round < rounds and not run_.is_done:
        run_.step()
        notes += [note for note in run_.notes() if note.startswith("compressor auto")]
    return notes


def candidate(kept, nbytes):
    return Candidate(Way(0.01, "sign"), kept, nbytes)


def test_numbers_of_rounds_go_down_to_where_the_run_is():
    assert numbers(0, 200) == [200, 168, 141, 119, 100, 84, 71, 59, 50, 42, 35, 30, 25, 21, 18, 15, 12, 11, 9]
    assert numbers(30, 200)[-1] == 35
    assert numbers(200, 200) == [200]
    assert numbers(0, 5) == [5]
    assert min(numbers(0, 1000)) >= LEAST


def test_the_number_that_lasts_for_the_most_lags_of_those_that_can_be_paid():
    pairs = {100: (candidate(0.1, 1),), 84: (candidate(0.11, 2),), 50: (candidate(0.3, 3),), 25: (candidate(0.4, 4),)}

    def best(rounds):
        return pairs.get(rounds, (candidate(0.01, 1),)), share

    share = 9.0
    assert longest(0, 100, best, lag, cost) == (50, pairs[50])
    assert longest(45, 100, best, lag, cost) == (100, pairs[100])  # what is over counts no more
    share = 2.0
    assert longest(0, 100, best, lag, cost) == (100, pairs[100])
    share = 0.5
    assert longest(0, 100, best, lag, cost)[0] == 9  # nothing can be paid


def test_only_the_best_at_its_price_is_considered():
    ways = [
        [candidate(0.1, 100), candidate(0.05, 120), candidate(0.2, 200), candidate(0.2, 210), candidate(-1.0, 5)],
        [candidate(0.3, 30), candidate(0.25, 40), candidate(0.5, 60)],
    ]
    assert [c.nbytes for c in efficient(ways[0])] == [5, 100, 200]
    for most in (40, 130, 160, 230, 300, 1e9):
        assert soonest([efficient(way) for way in ways], most) == soonest(ways, most)


def test_only_runs_in_which_hardly_anyone_comes_twice_are_planned():
    def early(algorithm=None, clients=MANY, **options):
        training = Training(**{"rounds": ROUNDS, "budget": BUDGET, "clients_per_round": 10, **options})
        return may_end_early(Rounds(training, clients), algorithm or method(compressor=TopK()))

    assert early()
    assert not early(budget=0)
    assert not early(clients=10 * ROUNDS)  # each once in the mean
    assert early(clients=10 * ROUNDS + 1)
    assert not early(server_schedule=Cosine())  # it would be cut off
    assert not early(method(local_update=AdamW(schedule="cosine", memory="client")))


def test_it_ends_early_within_its_budget_and_says_so(problem):
    run_ = simulation(problem)
    notes = played(run_)
    assert 0 < run_.state.spending.ends == run_.round < ROUNDS
    assert 0.85 * BUDGET <= run_.ledger.sent() <= BUDGET
    assert f"over {run_.round} of {ROUNDS} rounds, as each further one sends newcomers" in notes[-1]
    assert run_.chosen() == notes[-1]


def test_heads_alone_would_cost_more_than_the_budget_if_it_had_all_rounds(problem, monkeypatch):
    monkeypatch.setattr("fedcef.simulation.choosing.may_end_early", lambda rounds, algorithm: False)
    run_ = simulation(problem, budget=60_000)
    played(run_)
    assert run_.ledger.sent() > 60_000
    monkeypatch.undo()
    planned = simulation(problem, budget=60_000)
    played(planned)
    assert planned.ledger.sent() <= 60_000


def test_a_large_budget_has_all_rounds(problem):
    run_ = simulation(problem, budget=10**9)
    played(run_)
    assert (run_.round, run_.state.spending.ends) == (ROUNDS, 0)
    assert f"over {ROUNDS} rounds." in run_.chosen()


@pytest.mark.parametrize("half", [0, 1, 3, 12])
def test_restored_in_the_middle_it_ends_the_same(problem, half):
    whole, first, second = (simulation(problem) for _ in range(3))
    played(whole)
    played(first, half)
    second.restore(first.round, first.parts())
    played(second)
    assert second.round == whole.round
    assert torch.equal(second.model(), whole.model())
    assert second.ledger.totals() == whole.ledger.totals()
    assert second.state.spending == whole.state.spending


def test_a_plan_survives_its_tensors():
    planned = replace(Spending.start([1, 2]), ends=17)
    assert Spending.of(planned.state()) == planned
    assert "ends" not in Spending.start([1, 2]).state()  # as snapshots always were


def test_the_last_round_that_is_played_is_evaluated(problem, tmp_path):
    options = {"compressor": "auto", "budget": BUDGET, "rounds": ROUNDS, "clients_per_round": 10, "batch_size": 4}
    history = run(problem, method(compressor=TopK()), **options, eval_every=1000)
    ends = history["round"][-1]
    assert history["round"] == [0, ends]
    assert 8 <= ends < ROUNDS
    kept = run(problem, method(compressor=TopK()), **options, eval_every=1000, out=tmp_path / "run")
    again = run(problem, method(compressor=TopK()), **options, eval_every=1000, out=tmp_path / "run", resume=True)
    assert kept["accuracy"] == again["accuracy"] == history["accuracy"]


def test_a_round_is_compressed_once_for_all_numbers_of_rounds(problem, monkeypatch):
    run_ = simulation(problem)
    trial, tried = Trial.of(run_.engine, run_.state, 0), []
    monkeypatch.setattr(Trial, "_try", lambda *args, real=Trial._try: tried.append(args[2]) or real(*args))
    first = trial.reaching(1e-4).candidates("compressor")
    count = len(tried)
    for reach in (1e-4, 2e-4):
        again = trial.reaching(reach).candidates("down_compressor")
    assert len(tried) <= 2 * count
    assert trial.reaching(1e-4).candidates("compressor") == first
    half = {c.way: c.nbytes for c in trial.reaching(1e-4).candidates("down_compressor")}
    assert again[0].nbytes == pytest.approx(2 * half[again[0].way])


@pytest.mark.parametrize(("budget", "early"), [(60_000, True), (500_000, False)])
def test_messages_that_stand_alone_stay_and_end_early_only_where_the_budget_is_short(problem, budget, early):
    down = TopK(ratio=0.05, values="sign")
    algorithm = method(downlink="snapshot", model_bits=1, down_compressor=down)
    run_ = Simulation(problem, algorithm, rounds=ROUNDS, budget=budget, clients_per_round=10, batch_size=4)
    notes = played(run_)
    assert run_.current_engine().algorithm.downlink == "snapshot"
    assert 0.85 * budget <= run_.ledger.sent() <= budget or not early
    assert (run_.round < ROUNDS) is early
    assert ("as each further one leaves less for the others" in notes[-1]) is early
    assert ", snapshots of 1 bit down, for " in notes[-1]


@pytest.mark.parametrize("tilt", [0.5, 0.9])
def test_more_for_the_first_rounds_does_not_pay_for_more_of_them(problem, tilt):
    """What a first round may cost is then more than the others can have, and each costs at least one message down."""
    algorithm = method(downlink="snapshot", model_bits=1, down_compressor=TopK(ratio=0.05, values="sign"))
    options = {"rounds": ROUNDS, "budget": 40_000, "clients_per_round": 10, "batch_size": 4}
    plain, tilted = (Simulation(problem, algorithm, **options, budget_tilt=one) for one in (0.0, tilt))
    for run_ in (plain, tilted):
        played(run_)
        assert run_.ledger.sent() <= 40_000
    assert tilted.round == plain.round < ROUNDS


def test_messages_to_those_who_come_too_late_are_paid_for_too(problem):
    """On a network that asks one and a half times as many as take part."""
    algorithm = method(downlink="snapshot", model_bits=1, down_compressor=TopK(ratio=0.05, values="sign"))
    options = {"rounds": ROUNDS, "budget": 60_000, "clients_per_round": 10, "batch_size": 4}
    run_ = Simulation(problem, algorithm, **options, network={"over_selection": 1.5})
    assert run_.engine.rounds.asked_size == 15
    played(run_)
    assert run_.round < ROUNDS
    assert 0.8 * 60_000 <= run_.ledger.sent() <= 60_000


def test_a_newcomer_to_dense_messages_is_not_said_to_get_all_of_them(problem):
    options = {"rounds": ROUNDS, "budget": 60_000, "clients_per_round": 10, "batch_size": 4}
    run_ = Simulation(problem, FedPAQ(local_lr=0.1, local_steps=2, compressor=Auto()), **options)
    played(run_)
    assert run_.round < ROUNDS
    assert "as each further one leaves less for the others" in run_.chosen()
    everything = Choice(Way(1.0, "native"), None)
    said = run_._chooser.sentence(replace(run_.state.spending, choice=everything))
    assert said.startswith("compressor auto: Top-100% values up, for 60.0 kB over ")


def test_a_rehearsal_sends_what_stands_alone_to_a_cohort():
    vectors, key = torch.randn(10, 126, generator=torch.Generator().manual_seed(0)), rehearsal_key(torch.arange(10))
    for downlink, changes in (("snapshot", False), ("lossy", True)):
        algorithm = method(compressor=TopK(), downlink=downlink, down_compressor=TopK()).for_share(0.01)
        few, many = (rehearsed_bytes(algorithm, vectors, key, n, torch.ones(126)) for n in (1000, MANY))
        assert (many > few) is changes
