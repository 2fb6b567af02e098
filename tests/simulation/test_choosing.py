"""A run that chooses its compressors by itself: what it measures, what it takes, and that it keeps to its word."""

from dataclasses import replace

import pytest
import torch

from fedcef import L1, FedCEF, Problem, run
from fedcef.algorithms import EF21, SCAFCOM, Qsparse, Zhang
from fedcef.compressors import Auto, TopK
from fedcef.core.errors import ConfigError
from fedcef.deployment.protocol import Protocol
from fedcef.problems.lasso import lasso
from fedcef.runs.settings import Settings
from fedcef.simulation.budget import Budget
from fedcef.simulation.candidates import Candidate, Trial, interpolated
from fedcef.simulation.choosing import WEIGHT, cheapest, cost, lag, soonest
from fedcef.simulation.rehearsal import Noting
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.spending import VALUES, Choice, Heard, Spending, Way
from fedcef.wire import frame_nbytes

H = L1(0.01)
PROBLEM = lasso(H, num_clients=6, samples=30, dim=600, support=50)
ROUNDS = 16


def method(kind=FedCEF, **options):
    return kind(**{"local_lr": 1e-3, "local_steps": 2, "regularizer": H, "compressor": Auto(), **options})


def simulation(algorithm=None, **options):
    return Simulation(
        PROBLEM, algorithm or method(), batch_size=5, oracle="stacked", **{"rounds": ROUNDS, "budget": 20000, **options}
    )


def played(run_, rounds=ROUNDS):
    notes = []
    while run_.round < rounds:
        run_.step()
        notes += [note for note in run_.notes() if note.startswith("compressor auto")]
    return notes


def candidate(kept, nbytes, ratio=0.01):
    return Candidate(Way(ratio, "sign"), kept, nbytes)


def test_the_pair_with_the_smallest_lag_that_the_bytes_allow():
    ups = [candidate(0.1, 100), candidate(0.2, 200), candidate(0.4, 400)]
    downs = [candidate(0.1, 1000), candidate(0.2, 2000), candidate(0.4, 4000)]
    assert lag((ups[0], downs[1])) == pytest.approx(WEIGHT * 10 + 5)
    # the way down is paid ten times over: of 2,400 bytes it can have 2,000, and the way up the rest
    assert soonest([ups, downs], 2400) == (ups[2], downs[1])
    assert soonest([ups, downs], 2399) == (ups[1], downs[1])
    assert soonest([ups, downs], 1500) == (ups[2], downs[0])
    assert soonest([ups, downs], 10) == (ups[0], downs[0])  # nothing fits
    assert soonest([ups], 250) == (ups[1],)
    assert soonest([[candidate(-0.5, 10), candidate(0.1, 20)]], 50)[0].kept == 0.1  # what adds to the error is no help


def test_the_cheapest_pair_whose_lag_is_short_enough():
    ups = [candidate(0.1, 100), candidate(0.2, 200), candidate(0.4, 400)]
    downs = [candidate(0.1, 1000), candidate(0.2, 2000), candidate(0.4, 4000)]
    for most in (WEIGHT * 10 + 10, 7.0, WEIGHT * 2.5 + 2.5):
        pair = cheapest([ups, downs], most)
        assert lag(pair) <= most
        assert all(cost(other) >= cost(pair) for u in ups for d in downs if lag(other := (u, d)) <= most)
    assert cheapest([ups, downs], 0.1) == (ups[2], downs[2])


def test_between_two_measurements_lie_powers_of_the_ratio():
    curve = [candidate(0.1 * r**0.5, 300 * r**0.8, r) for r in (0.01, 0.02, 0.04)]
    found = list(interpolated(curve))
    assert len(found) == 17
    for one in found:
        assert one.kept == pytest.approx(0.1 * one.way.ratio**0.5)
        assert one.nbytes == pytest.approx(300 * one.way.ratio**0.8)
    assert [one.way.ratio for one in found][8] == pytest.approx(0.02)


def trial_of(*vectors):
    """A trial of a round with six clients who send these vectors, (6, p) each; the server has the first one's row."""
    run_ = simulation(method(downlink="lossy", compressor=TopK(ratio=0.05)))
    trial = Trial.of(run_.engine, run_.state, 0)
    up = Noting(TopK(ratio=0.05))
    down = Noting(TopK(ratio=0.05))
    made = [up.compress(x, None) for x in vectors]
    sent = down.compress(vectors[0][0], None)
    return replace(
        trial, up={"delta": made[0]}, down={"increment": sent}, noted={"compressor": up, "down_compressor": down}
    )


def test_kept_is_the_energy_of_the_mean_and_bytes_are_those_of_the_frames():
    x = torch.randn(6, 600, generator=torch.Generator().manual_seed(0))
    trial = trial_of(x)
    for field, vectors, times in (("compressor", x, 1), ("down_compressor", x[0], 6)):
        measured = trial._measured(field, 10**6)
        for values in VALUES:
            for found in measured[values]:
                payload = TopK(ratio=found.way.ratio, values=values).compress(vectors, None)
                error = (payload.dense() - vectors).reshape(-1, 600).mean(0).square().sum()
                energy = vectors.reshape(-1, 600).mean(0).square().sum()
                assert found.kept == pytest.approx(1 - float(error / energy), abs=1e-5)
                name = "delta" if times == 1 else "increment"
                assert found.nbytes == times * int(frame_nbytes({name: payload}).sum())


def best_of(x, most):
    trial = trial_of(x.expand(6, -1).contiguous())
    return soonest([trial.candidates("compressor", most)], most)[0]


def test_signs_for_equal_sizes_and_levels_for_unequal_ones():
    """Known best choices: 100 entries of one size are told by signs; for two sizes far apart signs are too coarse."""
    equal, steps = torch.zeros(800), torch.zeros(800)
    equal[::8] = torch.where(torch.arange(100) % 2 == 0, 1.0, -1.0)
    steps[::8] = torch.tensor([1.0, -0.5, 0.25, -0.125, 0.0625]).repeat(20)
    found = best_of(equal, 3000)
    assert found.way == Way(1 / 8, "sign")
    assert found.kept == pytest.approx(1)
    assert best_of(steps, 3000).way.values in ("log3", "uniform4")
    assert best_of(torch.randn(600, generator=torch.Generator().manual_seed(1)), 1e9).way.values == "native"


@pytest.mark.parametrize("clients", [6, 2])
@pytest.mark.parametrize("budget", [20000, 60000])
def test_it_keeps_to_the_budget_and_says_what_it_chose(budget, clients):
    run_ = simulation(budget=budget, clients_per_round=clients)
    notes = played(run_)
    # with some of the clients something is held back for those that might come next
    assert (0.9 if clients == 6 else 0.8) * budget <= run_.ledger.sent() <= budget
    assert 1 <= len(notes) <= 2
    assert "% " in notes[0]
    assert "down (lossy, index contexts), for" in notes[0]
    assert run_.chosen() == notes[-1]
    assert run_.current_engine().algorithm.downlink == "lossy"
    assert run_.current_engine().algorithm.compressor.ratio == run_.ratios()["up_ratio"]


def test_nothing_is_chosen_in_the_first_rounds():
    run_ = simulation()
    assert played(run_, 3) == []  # an eighth, but at least three
    assert run_.chosen() == ""
    assert len(played(run_, 4)) == 1


@pytest.mark.parametrize("kind", [SCAFCOM, EF21, Qsparse])
def test_other_methods_choose_the_way_up(kind):
    free = simulation(method(kind, compressor=TopK(ratio=0.05)), budget=0)
    played(free)
    total = free.ledger.sent()
    run_ = simulation(method(kind), budget=total)
    notes = played(run_)
    assert run_.ledger.sent() <= total
    assert "down" not in notes[0]
    assert run_.ratios()["down_ratio"] is None


@pytest.mark.parametrize(("half", "clients"), [(1, 6), (3, 2), (4, 6), (10, 2)])
def test_restored_in_the_middle_it_goes_on_the_same(half, clients):
    whole, first, second = (simulation(clients_per_round=clients) for _ in range(3))
    played(whole)
    played(first, half)
    second.restore(first.round, first.parts())
    played(second)
    assert torch.equal(second.model(), whole.model())
    assert second.ledger.totals() == whole.ledger.totals()
    assert second.state.spending == whole.state.spending


def test_a_choice_survives_its_tensors():
    for choice in (Choice(Way(0.1, "log3"), None), Choice(Way(0.3, "sign"), Way(0.01, "native"))):
        spending = replace(Spending.start([1, 2]), choice=choice, heard=Heard(7, 0.93))
        assert Spending.of(spending.state()) == spending


def test_who_is_away_is_charged_for():
    budget = Budget(1000, 10, away=0.5)
    assert [budget.reach(t) for t in (0, 8, 9, 10)] == [1 - 0.5**10, 0.75, 0.5, 0.0]
    assert Budget(1000, 10).reach(3) == 1
    left, shares = 1000, []
    for t in range(10):
        shares.append(budget.share(t, left))
        left -= shares[-1]
    assert sum(shares) == pytest.approx(1000)
    assert shares[9] / shares[8] == pytest.approx(0.5 / 0.75)


def test_charges_and_what_is_sent_are_the_same_at_the_end():
    run_ = simulation(clients_per_round=2)
    budget = Budget(20000, ROUNDS, away=2 / 3)
    played(run_, 10)
    assert budget.charged(run_.state, 10) > run_.ledger.sent()
    assert Budget(20000, ROUNDS).charged(run_.state, 10) == run_.ledger.sent()
    played(run_)
    assert budget.charged(run_.state, ROUNDS) == run_.ledger.sent()


def test_what_it_is_refused_for():
    with pytest.raises(ConfigError, match="needs something to choose for"):
        simulation(budget=0)
    with pytest.raises(ConfigError, match="the problem has none"):
        simulation(method(compressor=Auto(target=0.9)), budget=0)
    with pytest.raises(ConfigError, match="no place for a compressor"):
        run(PROBLEM, method(Zhang), budget=20000)
    settings = {"compressor": {"name": "auto"}, "budget": "1MB", "data": {"name": "digits"}}
    problem = Settings(**settings).build_problem()
    with pytest.raises(ConfigError, match="noise in the messages"):
        Settings(**settings, privacy={"clip": 1.0, "noise": 1.0}).build_algorithm(problem)


def blobs():
    """Two classes that a linear model learns in a few rounds."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(120, 20, generator=random)
    y = (x[:, :5].sum(1) > 0).long()
    model = torch.nn.Linear(20, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    clients = [(x[i : i + 25], y[i : i + 25]) for i in (0, 25, 50, 75)]
    return Problem.build(
        model, torch.nn.functional.cross_entropy, clients=clients, test=(x[100:], y[100:]), regularizer=L1(1e-4)
    )


def test_from_python_and_in_a_folder(tmp_path):
    plain = FedCEF(local_lr=0.05, local_steps=2)
    history = run(blobs(), plain, compressor="auto", budget="20kB", rounds=24, eval_every=4)
    assert any(note.startswith("compressor auto: Top-") for note in history.notes)
    kept = run(blobs(), plain, compressor="auto", budget="20kB", rounds=24, eval_every=4, out=tmp_path / "run")
    assert kept.notes == history.notes
    assert kept["accuracy"] == history["accuracy"]
    assert '"chosen": "compressor auto: Top-' in (tmp_path / "run" / "summary.json").read_text()


def test_a_run_stops_at_its_target():
    history = run(blobs(), FedCEF(local_lr=0.1, local_steps=2), compressor=Auto(target=0.9), rounds=200, eval_every=5)
    assert history["accuracy"][-1] >= 0.9
    assert max(history["accuracy"][:-1]) < 0.9
    assert history["round"][-1] < 200
    assert "the target was 0.9; it took " in history.notes[-1]


def test_a_run_that_will_not_reach_its_target_raises_its_ratios():
    slow = FedCEF(local_lr=1e-5, local_steps=2)
    options = {"compressor": Auto(target=1.0), "rounds": 40, "eval_every": 5}
    history = run(blobs(), slow, **options)
    raised = [note for note in history.notes if "below the target of 1" in note]
    # heard first in round 15, then looked at every fifth round from 20 to 40, the last of which changes nothing
    assert [note.split(":")[0] for note in raised] == [f"Round {t}" for t in (20, 25, 30, 35)]
    assert history["up_ratio"][-1] / history["up_ratio"][3] == pytest.approx(4)


@pytest.mark.parametrize("budget", [0, 20_000])
def test_a_run_that_ends_short_of_its_target_says_so(budget):
    slow = FedCEF(local_lr=1e-5, local_steps=2)
    options = {"compressor": Auto(target=1.0), "budget": budget, "eval_every": 5}
    for rounds in (40, 7):
        notes = run(blobs(), slow, **options, rounds=rounds).notes
        ends = [note for note in notes if "short of the target, 1; it took " in note]
        assert len(ends) == 1
        assert ends == [notes[-1]]
        assert ends[0].startswith(f"Round {rounds}: the run ends with an accuracy of ")


def test_an_interrupted_run_with_a_target_goes_on_the_same(tmp_path):
    slow = FedCEF(local_lr=1e-5, local_steps=2)
    options = {"compressor": Auto(target=1.0), "rounds": 40, "eval_every": 5}

    def interrupt(record):
        if record["round"] == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(blobs(), slow, **options, out=tmp_path, watch=interrupt)
    resumed, whole = run(blobs(), slow, **options, out=tmp_path, resume=True), run(blobs(), slow, **options)
    for name in ("up_ratio", "wire_up_bytes", "accuracy"):
        assert resumed[name] == whole[name]


def test_a_deployment_refuses_it():
    settings = Settings(compressor={"name": "auto", "target": 0.9}, data={"name": "digits"})
    with pytest.raises(ConfigError, match="in the simulator only"):
        Protocol(settings, settings.build_problem())
