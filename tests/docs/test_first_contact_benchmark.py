"""The benchmark of first contact: what its rules keep, and what they do not."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from test_pages import DOCS
from torch import nn

from fedcef import FedCEF, Problem, TopK
from fedcef.algorithms.algorithm import Received
from fedcef.compressors import Identity
from fedcef.core.rng import round_key
from fedcef.core.training import Training
from fedcef.problems.fitting import fitted
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation

BENCHMARKS = DOCS.parent / "benchmarks"
CLIENTS, COHORT, DIM = 9, 3, 12
SIGNS = TopK(ratio=0.1, values="sign")
LOSSY = {"downlink": "lossy", "down_compressor": SIGNS, "index_code": "context"}


@pytest.fixture
def rules(monkeypatch):
    yield from imported("first_contact_rules", monkeypatch)


@pytest.fixture
def study(monkeypatch):
    yield from imported("first_contact", monkeypatch)


def imported(name, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield __import__(name)
    for module in ("first_contact", "first_contact_rules", "measure"):
        sys.modules.pop(module, None)


def simulated(method, outputs=1, precision="float64"):
    """Least squares of nine different clients, of whom three take part in a round, with exact gradients."""
    random = torch.Generator().manual_seed(0)
    truth = torch.randn(DIM, outputs, generator=random)
    inputs = torch.randn(CLIENTS, 2 * DIM, DIM, generator=random)
    targets = inputs @ truth + torch.randn(CLIENTS, 1, outputs, generator=random)
    model = nn.Linear(DIM, outputs, bias=False)
    nn.init.zeros_(model.weight)
    problem = Problem.build(model, nn.functional.mse_loss, list(zip(inputs, targets, strict=True)), None, L1(0.05))
    training = Training(rounds=4000, batch_size=0, clients_per_round=COHORT, precision=precision)
    return Simulation(problem, fitted(problem, method, training.rounds), training)


def method(**options):
    return FedCEF(**{"local_lr": 0.02, "local_steps": 3, "mixing": 0.5, "compressor": TopK(ratio=0.3)} | options)


def kinds(rules, usual):
    """Every rule, by whether c stays the mean of what is known."""
    exact = {
        "first message": rules.as_kind(rules.DenserFirst, usual, times=3.0),
        "begun at c": rules.as_kind(rules.FromC, usual),
        "own gradient once": rules.as_kind(rules.OwnGradient, usual),
        "own gradient always": rules.as_kind(rules.OwnGradient, usual, how="always"),
        "warm mixing": rules.as_kind(rules.WarmMixing, usual, slow=4.0),
        "first rounds": rules.as_kind(rules.DenserStart, usual, times=3.0, both_ways=True),
        "short steps": rules.as_kind(rules.WarmStep, usual),
    }
    biased = {
        "begun at c, which stays": rules.as_kind(rules.FromC, usual, stays=True),
        "own gradient instead": rules.as_kind(rules.OwnGradient, usual, how="instead"),
    }
    return exact, biased


def played(kind, rounds):
    """Quadratic clients with exact gradients, in a loop of its own: the size of the gradient mapping at the end."""
    random = torch.Generator().manual_seed(0)
    half = torch.randn(CLIENTS, 3 * DIM, DIM, generator=random, dtype=torch.float64) / (3 * DIM) ** 0.5
    a, b = half.mT @ half, torch.randn(CLIENTS, DIM, generator=random, dtype=torch.float64)
    kind = replace(kind, regularizer=L1(0.05)).for_share(COHORT / CLIENTS)
    replica, server = kind.replica_init(b[0]), kind.server_init(b[0])
    clients = {name: start.repeat(CLIENTS, 1) for name, start in kind.client_init(b[0]).items()}
    for t in range(rounds):
        cohort = torch.randperm(CLIENTS, generator=random)[:COHORT].sort().values
        now, mine = kind.in_round(torch.tensor(t)), {name: table[cohort] for name, table in clients.items()}

        def gradients(x, k, some=cohort):
            return (a[some] @ x.expand(COHORT, -1).unsqueeze(-1)).squeeze(-1) - b[some]

        up, mine = now.local(replica, mine, gradients, round_key(0, t, cohort))
        got = Received.of(up, torch.tensor(t), share=COHORT / CLIENTS)
        down, server = now.server_step(server, replica, got)
        replica = now.advance(replica, down)
        clients = {name: table.index_copy(0, cohort, mine[name]) for name, table in clients.items()}
    z = replica["z"]
    moved = kind.regularizer.prox(z - kind.step * (a.mean(0) @ z - b.mean(0)), kind.step)
    return float((z - moved).norm() / kind.step)


@pytest.mark.parametrize("down", [{}, LOSSY], ids=["increment", "lossy"])
def test_a_first_message_that_is_as_dense_as_others_changes_no_bit(rules, down):
    usual = method(compressor=SIGNS, **down)
    ours, theirs = (
        simulated(kind, 10, "float32") for kind in (rules.as_kind(rules.DenserFirst, usual, times=1.0), usual)
    )
    for _ in range(12):
        ours.step()
        theirs.step()
    mine, others = ours.state.tensors(), theirs.state.tensors()
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[name], others[name]) for name in mine)


def test_only_first_messages_are_denser(rules):
    simulation = simulated(rules.as_kind(rules.DenserFirst, method(compressor=TopK(ratio=0.1)), times=5.0), 10)
    met, kept = set(), 0
    for t in range(12):
        cohort = set(simulation.engine.rounds.cohort(t).tolist())
        kept += sum(12 if client in met else 60 for client in cohort)
        met |= cohort
        simulation.step()
        assert simulation.ledger.totals()["paper_up_bytes"] == 8 * kept
    assert len(met) == CLIENTS


def test_c_is_the_mean_of_what_is_known_where_that_is_claimed(rules):
    exact, biased = kinds(rules, method())
    for name, kind in (exact | biased).items():
        simulation, gaps = simulated(kind), []
        for _ in range(30):
            simulation.step()
            gaps.append(float(simulation.diagnostics()["control_gap"]))
        assert (max(gaps) <= 1e-12) if name in exact else (gaps[-1] >= 1e-3), name


@pytest.mark.parametrize("down", [{}, {"downlink": "lossy", "down_compressor": TopK(ratio=0.5)}], ids=["all", "lossy"])
def test_the_fixed_point_is_kept_where_that_is_claimed(rules, down):
    exact, biased = kinds(rules, method(compressor=TopK(ratio=0.5), local_lr=0.1, **down))
    for name, kind in (exact | biased).items():
        left = played(kind, 400)
        assert (left <= 1e-8) if name in exact else (left >= 1e-3), name


def test_at_first_contact_clients_send_their_difference_to_c(rules):
    usual = method(compressor=Identity(), local_steps=1).for_share(COHORT / CLIENTS)
    c, gradients = torch.randn(DIM, dtype=torch.float64), torch.randn(2, DIM, dtype=torch.float64)
    clients = {"c_i": torch.stack([torch.zeros_like(c), torch.randn_like(c)])}
    replica, key = {"z": torch.zeros_like(c), "c": c}, round_key(0, 0, torch.arange(2))
    up, _ = rules.as_kind(rules.FromC, usual).local(replica, clients, lambda x, k: gradients.clone(), key)
    new, seen = up["delta"].dense()
    torch.testing.assert_close(new, gradients[0] - c, rtol=0, atol=1e-12)
    torch.testing.assert_close(seen, gradients[1] - usual.known(c, clients["c_i"][1]), rtol=0, atol=1e-12)


def test_an_own_gradient_takes_the_place_of_what_the_server_knows_in_the_second_visit(rules):
    """Alone with exact gradients at one point, its steps are then corrected by c less its own first gradient."""
    usual = method(local_steps=2).for_share(COHORT / CLIENTS)
    gradient, seen_at = torch.randn(DIM, dtype=torch.float64), []

    def oracle(x, k):
        seen_at.append(x.clone())
        return gradient.clone()

    replica = {name: torch.zeros(DIM, dtype=torch.float64) for name in ("z", "c")}
    key = round_key(0, 0, torch.tensor(0))
    corrections = {}
    for how in ("once", "always"):
        kind, client = rules.as_kind(rules.OwnGradient, usual, how=how), None
        client = kind.client_init(replica["z"])
        corrections[how] = []
        for _ in range(3):
            seen_at.clear()
            _, client = kind.local(replica, client, oracle, key)
            corrections[how].append(-seen_at[1] / kind.local_lr - gradient)  # z = 0: x_1 = -α (g + drift)
    for how, (first, second, third) in corrections.items():
        assert first.abs().max() <= 1e-12
        torch.testing.assert_close(second, -gradient, rtol=0, atol=1e-12)
        assert (float((third + gradient).abs().max()) <= 1e-12) == (how == "always")


def test_mixing_begins_at_one_and_falls_to_its_own(rules):
    kind = rules.as_kind(rules.WarmMixing, method(mixing=0.3, compressor=Identity())).for_share(COHORT / CLIENTS)
    assert [kind.in_round(torch.tensor(t)).mixing for t in range(5)] == [1.0, 1 / 2, 1 / 3, 0.3, 0.3]
    simulation = simulated(replace(kind, local_steps=1))
    simulation.step()
    some = torch.stack([simulation.clients["c_i"][i] for i in simulation.engine.rounds.cohort(0)])
    torch.testing.assert_close(simulation.replica["c"], some.mean(0), rtol=0, atol=1e-12)


def test_first_rounds_are_denser_and_shorter_until_they_are_over(rules):
    usual = method(server_lr=2.0, down_compressor=TopK(ratio=0.2))
    steps = rules.as_kind(rules.WarmStep, usual, rounds=4)
    assert [steps.in_round(torch.tensor(t)).server_lr for t in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    for both_ways in (False, True):
        kind = rules.as_kind(rules.DenserStart, usual, times=2.0, rounds=2, both_ways=both_ways)
        found = [kind.in_round(torch.tensor(t)) for t in range(4)]
        assert [now.compressor.ratio for now in found] == [0.6, 0.6, 0.3, 0.3]
        assert [now.down_compressor.ratio for now in found] == ([0.4, 0.4] if both_ways else [0.2, 0.2]) + [0.2, 0.2]


def test_with_all_clients_nothing_changes(rules):
    exact, biased = kinds(rules, method())
    usual = method().for_share(1.0)
    z0 = torch.zeros(DIM, dtype=torch.float64)
    for name, kind in (exact | biased).items():
        assert kind.for_share(1.0).client_init(z0).keys() == usual.client_init(z0).keys(), name
        assert kind.for_share(1.0).replica_init(z0).keys() == usual.replica_init(z0).keys(), name


def test_a_ratio_for_all_takes_as_many_bytes(study):
    more = study.as_many_bytes(TopK(ratio=0.04, values="sign"), 5, 0.25)
    assert 0.05 < more.ratio < 0.08
    assert study.bits(more.ratio) == pytest.approx(0.75 * study.bits(0.04) + 0.25 * study.bits(0.2), rel=1e-3)
    assert study.Messages(160, 10, 100).first == pytest.approx(100, rel=1e-3)
    assert study.Messages(1, 3, 7).first == pytest.approx(3)


def test_what_has_ended_is_not_repeated(study, tmp_path, monkeypatch, capsys):
    options = ["--seeds", "1", "2", "--set", "rounds=4", "--set", "num_clients=20", "--set", "clients_per_round=2"]
    options += ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path), "--only", "begun at c"]
    said = []
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["first_contact.py", *options])
        study.main()
        said.append(capsys.readouterr().out)
        monkeypatch.setattr(study, "Simulation", None)
    assert said[0] == said[1]
    record = json.loads((tmp_path / "first_contact.json").read_text("utf-8"))
    assert [list(by_seed) for by_seed in record["runs"].values()] == [["1", "2"], ["1", "2"]]
    assert study.table(record["runs"]) in said[0]
    assert len(list((tmp_path / "cache").glob("*.json"))) == 4
