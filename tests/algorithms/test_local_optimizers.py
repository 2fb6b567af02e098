"""Methods with local optimisers: PyTorch's beside them, where they end, and what is kept, refused and counted."""

from dataclasses import fields

import pytest
import torch

from fedcef.algorithms import EF21, SCAFFOLD, DataParallel, FedAvg, FedBuff, FedCEF, FedDA, FedMiD, Qsparse, SparseLoCo
from fedcef.algorithms.diloco import DiLoCo
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.optimizers import SGD, Adam, AdamW, LocalMomentum, Momentum, Muon
from fedcef.regularizers import L1, L2Norm, Zero

from .setting import Quadratics, deploy, settle, simulate

PROBLEM = Quadratics.random()
ONE = Quadratics.random(clients=1)
L = PROBLEM.smoothness
COMMON = {"local_steps": 5, "regularizer": L1(0.1), "compressor": TopK(ratio=0.2)}


def torch_points(kind, problem, steps, **options):
    """The points of a PyTorch optimiser on the mean of the clients' gradients."""
    x = torch.nn.Parameter(problem.z0.clone())
    optimizer, points = kind([x], **options), []
    for _ in range(steps):
        x.grad = problem.gradient(x.detach())
        optimizer.step()
        points.append(x.detach().clone())
    return torch.stack(points)


# Identities

ADAMW = {"momentum": 0.9, "decay": 0.95, "eps": 1e-6, "weight_decay": 0.1}


@pytest.mark.parametrize(
    "method",
    [
        FedAvg(local_lr=0.01, local_steps=1, local_update=AdamW(**ADAMW, memory="client")),
        FedAvg(local_lr=0.01, local_steps=100, local_update=AdamW(**ADAMW)),
        DiLoCo(local_lr=0.01, local_steps=1, server_lr=1.0, momentum=0, local_update=AdamW(**ADAMW, memory="client")),
        SparseLoCo(
            local_lr=0.01, local_steps=1, compressor=TopK(ratio=1.0), local_update=AdamW(**ADAMW, memory="client")
        ),
    ],
    ids=["fedavg", "one round", "diloco", "sparseloco"],
)
def test_adamw_on_one_client_is_torchs(method):
    found = torch.stack(simulate(method, ONE, 100 // method.local_steps).points)
    options = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    expected = torch_points(torch.optim.AdamW, ONE, 100, **options)[method.local_steps - 1 :: method.local_steps]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_on_one_client_is_torchs(nesterov):
    update = LocalMomentum(momentum=0.8, nesterov=nesterov, memory="client")
    found = torch.stack(simulate(FedAvg(local_lr=0.02, local_steps=1, local_update=update), ONE, 100).points)
    options = {"lr": 0.02, "momentum": 0.8, "nesterov": nesterov}
    torch.testing.assert_close(found, torch_points(torch.optim.SGD, ONE, 100, **options), rtol=0, atol=1e-12)


def test_diloco_with_one_sgd_step_is_data_parallelism():
    """Its outer momentum is then that of SGD on the mean gradient; without, plain SGD."""
    for momentum in (0.0, 0.9):
        method = DiLoCo(local_lr=0.02, local_steps=1, server_lr=0.7, momentum=momentum, local_update=SGD())
        found = torch.stack(simulate(method, PROBLEM, 60).points)
        options = {"lr": 0.014, "momentum": momentum, "nesterov": momentum > 0}
        torch.testing.assert_close(found, torch_points(torch.optim.SGD, PROBLEM, 60, **options), rtol=0, atol=1e-12)


@pytest.mark.parametrize("problem", [ONE, PROBLEM], ids=["one client", "several"])
@pytest.mark.parametrize("memory", ["round", "client"])
def test_data_parallelism_is_torchs_adamw_on_the_mean_gradient(problem, memory):
    """Whatever the option says: an optimiser that forgets between steps would be none."""
    method = DataParallel(local_lr=0.01, local_steps=1, local_update=AdamW(**ADAMW, memory=memory))
    options = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    found = torch.stack(simulate(method, problem, 100).points)
    torch.testing.assert_close(found, torch_points(torch.optim.AdamW, problem, 100, **options), rtol=0, atol=1e-10)


def test_data_parallelism_and_diloco_with_one_plain_step_are_one():
    diloco = DiLoCo(local_lr=0.02, local_steps=1, server_lr=0.7, momentum=0.0, local_update=SGD())
    ours = DataParallel(local_lr=0.02, local_steps=1, server_lr=0.7)
    found, expected = (torch.stack(simulate(method, PROBLEM, 60).points) for method in (ours, diloco))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_data_parallelism_with_h_ends_at_the_solution():
    """Its proximal steps are in AdamW's metric."""
    method = DataParallel(local_lr=0.02 / L, local_steps=5, regularizer=L1(0.1), local_update=AdamW(eps=0.3))
    z, distance = settle(method, PROBLEM, 4000, 1e-8)
    assert distance <= 1e-8
    assert int((z == 0).sum()) == 6


def test_diloco_with_one_adamw_step_takes_the_mean_of_the_clients_steps():
    """Not AdamW's step for the mean gradient, but where clients are alike."""
    options = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    update = AdamW(**ADAMW, memory="client")
    method = DiLoCo(local_lr=0.01, local_steps=1, server_lr=1.0, momentum=0, local_update=update)
    alike = Quadratics(PROBLEM.a[:1].repeat(6, 1, 1), PROBLEM.b[:1].repeat(6, 1))
    expected = torch_points(torch.optim.AdamW, alike, 50, **options)
    torch.testing.assert_close(torch.stack(simulate(method, alike, 50).points), expected, rtol=0, atol=1e-10)
    expected = torch_points(torch.optim.AdamW, PROBLEM, 50, **options)
    assert float((torch.stack(simulate(method, PROBLEM, 50).points) - expected).abs().max()) > 1e-2


def test_sparseloco_that_forgets_nothing_is_qsparse():
    options = {"local_lr": 0.02, "local_steps": 3, "compressor": TopK(ratio=0.2), "local_update": SGD()}
    ours = simulate(SparseLoCo(**options, error_decay=1.0), PROBLEM, 10)
    theirs = simulate(Qsparse(**options, composite="subgradient"), PROBLEM, 10)
    torch.testing.assert_close(torch.stack(ours.points), torch.stack(theirs.points), rtol=0, atol=1e-12)


@pytest.mark.parametrize("update", [Momentum(nesterov=True), Adam()], ids=["nesterov", "adam"])
def test_sparseloco_takes_server_updates(update):
    """As DiLoCo with compressed changes does: the server takes the step and sends z."""
    options = {"local_lr": 0.02, "local_steps": 3, "server_lr": 0.1, "server_update": update}
    kept = {"compressor": TopK(ratio=0.2), "local_update": AdamW(**ADAMW, memory="client")}
    ours = simulate(SparseLoCo(**options, **kept, error_decay=1.0), PROBLEM, 10)
    theirs = simulate(Qsparse(**options, **kept, composite="subgradient"), PROBLEM, 10)
    torch.testing.assert_close(torch.stack(ours.points), torch.stack(theirs.points), rtol=0, atol=1e-12)
    diloco = DiLoCo(local_lr=0.02, local_steps=3, server_lr=0.1, local_update=AdamW(**ADAMW, memory="client"))
    whole = {"compressor": TopK(ratio=1.0), "local_update": diloco.local_update}
    if isinstance(update, Momentum):
        ours = simulate(SparseLoCo(**options, **whole), PROBLEM, 10)
        expected = torch.stack(simulate(diloco, PROBLEM, 10).points)
        torch.testing.assert_close(torch.stack(ours.points), expected, rtol=0, atol=1e-12)


# Where FedCEF ends

EXACT = {
    "momentum": {"local_update": LocalMomentum(momentum=0.5), "local_lr": 0.03 / L},
    "nesterov, kept": {
        "local_update": LocalMomentum(momentum=0.5, nesterov=True, memory="client"),
        "local_lr": 0.03 / L,
    },
    "adamw": {"local_update": AdamW(eps=0.3), "local_lr": 0.05 / L},
    "adamw, no floor": {"local_update": AdamW(), "local_lr": 0.025 / L},
    "adamw, kept": {"local_update": AdamW(eps=0.3, memory="client"), "local_lr": 0.05 / L},
    "one metric for all": {"metric": "adam", "metric_memory": 0.9, "metric_floor": 0.3, "local_lr": 0.02 / L},
    "one metric, lossy": {
        "metric": "adam", "metric_memory": 0.9, "metric_floor": 0.3, "local_lr": 0.01 / L,
        "downlink": "lossy", "down_compressor": TopK(ratio=0.3),
    },
    "adamw, one metric": {
        "metric": "adam", "metric_memory": 0.9, "metric_floor": 0.3, "local_lr": 0.02 / L,
        "local_update": AdamW(eps=0.3),
    },
    "directions of momentum": {
        "control": "direction", "local_update": LocalMomentum(momentum=0.5), "local_lr": 0.03 / L,
    },
    "directions of momentum, kept": {
        "control": "direction", "local_update": LocalMomentum(momentum=0.5, memory="client"), "local_lr": 0.02 / L,
    },
}  # fmt: skip


@pytest.mark.parametrize("case", EXACT)
def test_the_fixed_point_of_fedcef_is_stationary(case):
    z, distance = settle(FedCEF(**COMMON, **EXACT[case]), PROBLEM, 4000, 1e-8)
    assert distance <= 1e-8
    assert int((z == 0).sum()) == 6


def test_without_its_reach_the_limit_is_another():
    """A negative control: the same update, with proximal steps of length α."""

    class Deaf(LocalMomentum):
        def reach(self, state, step):
            return None

    options = {**COMMON, "local_lr": 0.03 / L}
    _, distance = settle(FedCEF(**options, local_update=Deaf(momentum=0.5)), PROBLEM, 600, 1e-8)
    assert distance > 1e-3


def test_directions_of_adamw_end_where_the_mean_direction_vanishes():
    """mean g_i/(|g_i| + ε) = 0 with one local step and without h: no stationary point where clients differ."""
    few = Quadratics.random(clients=3, dim=6)
    update = AdamW(eps=0.3, momentum=0.0, decay=0.0)
    method = FedCEF(local_lr=0.2 / few.smoothness, local_steps=1, control="direction", local_update=update)
    z = simulate(method, few, 1500).points[-1]
    g = few.oracle(z, 0)
    assert float((g / (g.abs() + 0.3)).mean(0).norm()) < 1e-8
    assert float(few.gradient(z).norm()) > 1e-2
    alike = Quadratics(few.a[:1].repeat(3, 1, 1), few.b[:1].repeat(3, 1))
    assert float(alike.gradient(simulate(method, alike, 1500).points[-1]).norm()) < 1e-8


def test_with_sgd_both_controls_are_one():
    plain = simulate(FedCEF(**COMMON, local_lr=0.02), PROBLEM, 6)
    other = simulate(FedCEF(**COMMON, local_lr=0.02, control="direction"), PROBLEM, 6)
    for part, vector in plain.replica.items():
        assert torch.equal(vector, other.replica[part])


def test_momentum_in_fedavg_keeps_the_weight_of_h():
    """One client, one local step: the limit is a stationary point, as the server's prox is longer by the gain."""
    update = LocalMomentum(momentum=0.5, memory="client")
    method = FedAvg(local_lr=0.3 / L, local_steps=1, regularizer=L1(0.1), local_update=update)
    assert settle(method, ONE, 2000, 1e-8)[1] <= 1e-8
    method = FedMiD(
        local_lr=0.1 / L,
        local_steps=3,
        regularizer=L1(0.1),
        server_prox="none",
        local_update=LocalMomentum(momentum=0.5),
    )
    assert settle(method, ONE, 2000, 1e-8)[1] <= 1e-8


# What is kept


@pytest.mark.parametrize("kind", [FedAvg, FedDA, FedMiD, SCAFFOLD, Qsparse, DiLoCo, SparseLoCo, FedCEF])
def test_kept_memory_is_part_of_a_clients_state(kind):
    compressor = {"compressor": TopK(ratio=0.3)} if kind.compresses else {}
    method = kind(local_lr=0.01, local_steps=3, local_update=AdamW(memory="client"), **compressor)
    _, clients, server = deploy(method, PROBLEM, 4)
    stacked = simulate(method, PROBLEM, 4)
    assert {"local_m", "local_v", "local_n"} <= set(stacked.clients)
    for part, table in stacked.clients.items():
        torch.testing.assert_close(torch.stack([client[part] for client in clients]), table, rtol=0, atol=1e-10)
    for part, vector in stacked.replica.items():
        torch.testing.assert_close(server[part], vector, rtol=0, atol=1e-10)
    assert stacked.clients["local_n"].tolist() == [[12.0]] * 6
    some = simulate(method, PROBLEM, 4, size=3)
    assert sum(some.clients["local_n"].flatten().tolist()) == 3 * 12  # who is away does not count on
    assert (
        simulate(kind(local_lr=0.01, local_update=AdamW(), **compressor), PROBLEM, 2)
        .clients.keys()
        .isdisjoint({"local_m", "local_v", "local_n"})
    )


def test_a_round_knows_its_first_step():
    update = AdamW(warmup=12, schedule="cosine").for_steps(40)
    method = FedAvg(local_lr=0.5, local_steps=4, local_update=update)
    rounds = Rounds(Training(rounds=10), 6)
    for t in (0, 2, 9):
        scheduled = rounds.at(t).scheduled(method)
        assert int(scheduled.local_update.before) == 4 * t
        factors = [float(scheduled.local_update.factor(k)) for k in range(4)]
        assert float(scheduled.step) == pytest.approx(0.5 * sum(factors), abs=1e-14)
    assert method.step == 2.0
    plain = FedAvg(local_update=AdamW())
    assert rounds.at(3).scheduled(plain) is plain


# What is refused


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FedBuff(local_update=AdamW(memory="client")), "Clients of FedBuff cannot keep an update's memory"),
        (lambda: EF21(local_update=AdamW()), "EF21 has no local gradient steps"),
        (lambda: FedAvg(local_update=AdamW(), regularizer=L1()), "Proximal steps of FedAvg have one length for all"),
        (
            lambda: FedAvg(local_update=LocalMomentum(lr_factors={"a": 2.0}), regularizer=L1()),
            "that option, or an update that scales all entries alike.$",
        ),
        (lambda: FedAvg(local_update="adamw"), "local_update is 'adamw'; it must be a LocalUpdate of fedcef.optimi"),
        (lambda: FedAvg(local_update=torch.optim.AdamW), "it must be a LocalUpdate .*, such as AdamW\\(\\).$"),
        (lambda: FedAvg(server_update="adam"), "server_update is 'adam'; it must be a ServerUpdate of fedcef.optimi"),
        (
            lambda: FedCEF(local_update=AdamW(), regularizer=L2Norm()),
            "operator of L2Norm is not closed in the metric of",
        ),
        (lambda: FedCEF(local_update=Muon(), regularizer=L1()), "Steps of Muon have no metric in which a proximal"),
        (
            lambda: FedCEF(local_update=AdamW(), regularizer=L1(), control="direction"),
            "Proximal steps of FedCEF have one length for all entries",
        ),
        (lambda: FedCEF(metric="adam", regularizer=L2Norm()), "is not closed in it; take l1, elastic_net or box"),
        (lambda: FedCEF(metric="adam", downlink="dense"), "which the downlink dense does not send; take increment"),
    ],
)
def test_what_does_not_go_together_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


def test_what_goes_together():
    decoupled = AdamW(proximal="decoupled")
    for method in (
        FedAvg(local_update=AdamW(), regularizer=L1(), composite="subgradient"),
        FedAvg(local_update=decoupled, regularizer=L2Norm()),
        FedCEF(local_update=decoupled, regularizer=L2Norm(), control="direction"),
        FedCEF(local_update=Muon(proximal="decoupled"), regularizer=L1()),
        FedCEF(local_update=AdamW(), regularizer=Zero(), control="direction"),
        DiLoCo(regularizer=L2Norm(), local_update=decoupled, composite="server_prox"),
    ):
        assert method.step > 0


# FedCEF that tells changes


def test_changes_told_without_loss_are_sparseloco_that_forgets_nothing():
    options = {"local_lr": 0.02, "local_steps": 3, "server_lr": 0.7, "compressor": TopK(ratio=0.2)}
    for update in (SGD(), AdamW(**ADAMW, memory="client")):
        ours = simulate(FedCEF(**options, local_update=update, control="change"), PROBLEM, 12)
        theirs = simulate(SparseLoCo(**options, local_update=update, error_decay=1.0), PROBLEM, 12)
        torch.testing.assert_close(torch.stack(ours.points), torch.stack(theirs.points), rtol=0, atol=1e-12)


def test_changes_are_all_told_in_the_end():
    """What clients have not told and the server has not passed on is all that is missing in z."""
    update = LocalMomentum(momentum=0.5, memory="client")
    method = FedCEF(
        local_lr=0.02,
        local_steps=3,
        compressor=TopK(ratio=0.2),
        downlink="lossy",
        down_compressor=TopK(ratio=0.1),
        control="change",
        local_update=update,
    )
    run = simulate(method, PROBLEM, 9)
    walked = []

    class Noting(FedCEF):
        def local(self, replica, client, oracle, key):
            message, state = super().local(replica, client, oracle, key)
            walked.append(state["v_i"] - client["v_i"] + message["delta"].dense())
            return message, state

    noting = simulate(Noting(**{f.name: getattr(method, f.name) for f in fields(method)}), PROBLEM, 9)
    assert torch.equal(noting.points[-1], run.points[-1])
    missing = run.clients["v_i"].mean(0) + run.server["c"]
    told = (PROBLEM.z0 - run.points[-1]) / method.move
    torch.testing.assert_close(told + missing, torch.stack(walked).mean(1).sum(0), rtol=0, atol=1e-10)


def test_changes_have_exact_zeros_and_are_for_everyone():
    method = FedCEF(**COMMON, local_lr=0.02 / L, control="change", downlink="lossy", down_compressor=TopK(ratio=0.2))
    assert int((simulate(method, PROBLEM, 400).points[-1] == 0).sum()) > 0
    replicas, _, at_server = deploy(method, PROBLEM, 5)
    together = simulate(method, PROBLEM, 5).replica
    assert all(torch.equal(replica["z"], at_server["z"]) for replica in replicas)
    torch.testing.assert_close(at_server["z"], together["z"], rtol=0, atol=1e-12)
    assert set(method.client_init(PROBLEM.z0)) == {"v_i"}
    assert method.adds_up == ()
    for wrong in ({"mixing": 0.5}, {"downlink": "dense"}, {"metric": "adam"}, {"share": 0.5}):
        with pytest.raises(ConfigError, match="control = 'change' take all clients"):
            FedCEF(control="change", **wrong)
