"""FedCEF's messages that stand alone: clients step from z in a few bits and c compressed, the server from its own."""

from itertools import islice

import numpy as np
import pytest
import torch

from fedcef.algorithms import FedCEF, FedPAQ
from fedcef.algorithms.coded_model import coded, decoded
from fedcef.compressors import Identity, TopK
from fedcef.compressors.rotations import TYPICAL
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Key, round_key
from fedcef.optimizers import Momentum
from fedcef.regularizers import L1, Zero

from .setting import Quadratics, deploy, play, received, settle, simulate

PROBLEM = Quadratics.random()
K = 5
COMMON = {"local_lr": 0.2 / (K * PROBLEM.smoothness), "local_steps": K, "regularizer": L1(0.1)}
TOP = TopK(ratio=0.2)


def snapshots(**options):
    return FedCEF(**{**COMMON, "compressor": TOP, "down_compressor": TOP, "downlink": "snapshot", **options})


def key(number):
    return Key(torch.tensor(number), torch.tensor(number))


def largest(x):
    kept = np.zeros_like(x)
    kept[np.abs(x).argmax()] = x[np.abs(x).argmax()]
    return kept


def test_three_rounds_of_two_of_four_by_hand():
    """K = 1, the largest of three entries both ways, z as it is; in plain NumPy."""
    random = np.random.default_rng(5)
    a, b = random.uniform(0.5, 3, (4, 3)), random.normal(size=(4, 3))  # f_i = Σ_j a_ij x_j²/2 - b_ij x_j
    step, weight, own, mixing, share = 0.1, 0.05, 0.6, 0.5, 0.5
    kappa = 1 - own * share / mixing
    z, c, c_bar, c_i = np.array([0.4, -0.2, 0.1]), np.zeros(3), np.zeros(3), np.zeros((4, 3))

    top1 = TopK(ratio=0.34)
    algorithm = FedCEF(
        local_lr=step, local_steps=1, regularizer=L1(weight), compressor=top1, downlink="snapshot", model_bits=0,
        down_compressor=top1, own_part=own, mixing=mixing,
    ).for_share(share)  # fmt: skip
    z0 = torch.from_numpy(z.copy())
    replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    clients = {name: v.repeat(4, 1) for name, v in algorithm.client_init(z0).items()}
    for t, cohort in enumerate([[0, 2], [1, 2], [0, 3]]):
        known = kappa * c_bar + own * c_i
        delta = np.array([largest(a[i] * z - b[i] - known[i]) for i in cohort])
        c = (1 - mixing) * c + mixing * (known.mean(0) + delta.mean(0))
        c_i[cohort] += delta
        c_bar = largest(c)
        z = np.sign(z - step * c) * np.maximum(np.abs(z - step * c) - step * weight, 0)

        some = Quadratics(torch.diag_embed(torch.from_numpy(a[cohort])), torch.from_numpy(b[cohort]))
        mine = {name: table[cohort] for name, table in clients.items()}
        up, mine = algorithm.local(replica, mine, some.oracle, round_key(0, t, torch.tensor(cohort)))
        down, server = algorithm.server_step(server, replica, received(up, t, share))
        replica = algorithm.advance(replica, down)
        clients["c_i"][cohort] = mine["c_i"]
        pairs = ((replica["z"], z), (server["z"], z), (replica["c"], c_bar), (server["c"], c), (clients["c_i"], c_i))
        for found, expected in (*pairs, (server["c_mean"], c_i.mean(0))):
            assert np.abs(found.numpy() - expected).max() <= 1e-15


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("mixing", [1.0, 0.5])
@pytest.mark.parametrize("participation", ["shared", "averaged"])
def test_if_nothing_is_lost_it_is_the_increment(size, mixing, participation):
    common = {**COMMON, "compressor": TOP, "mixing": mixing, "participation": participation}
    plain = simulate(FedCEF(**common), PROBLEM, 50, size)
    whole = simulate(snapshots(**common, model_bits=0, down_compressor=Identity()), PROBLEM, 50, size)
    gap = max(float((a - b).abs().max()) for a, b in zip(plain.points, whole.points, strict=True))
    assert gap <= 1e-13


@pytest.mark.parametrize("bits", [0, 1, 2, 4])
def test_a_message_stands_alone(bits):
    """Whatever replica it finds, it makes the same of it."""
    algorithm = snapshots(model_bits=bits).for_share(1.0)
    assert algorithm.stands_alone
    z0 = PROBLEM.z0
    replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    clients = {name: v.repeat(6, 1) for name, v in algorithm.client_init(z0).items()}
    for t in range(4):
        up, clients = algorithm.local(replica, clients, PROBLEM.oracle, round_key(0, t, torch.arange(6)))
        down, server = algorithm.server_step(server, replica, received(up, t))
        replica = algorithm.advance(replica, down)
        newcomer = algorithm.advance(algorithm.replica_init(z0), down)
        assert all(torch.equal(newcomer[name], replica[name]) for name in replica)


@pytest.mark.parametrize("bits", [1, 3])
def test_everyone_has_the_same_replica_bit_for_bit(bits):
    """In float32 and through bytes."""
    problem = Quadratics.random(dtype=torch.float32)
    algorithm = snapshots(model_bits=bits, compressor=TopK(ratio=0.2, values="sign"))
    replicas, _, server = deploy(algorithm, problem, 15)
    for replica in replicas:
        assert all(torch.equal(replica[name], server[name]) for name in server)
    simulated = simulate(algorithm, problem, 15)
    assert torch.allclose(simulated.replica["z"], server["z"], rtol=1e-5, atol=1e-6)


def test_the_server_s_model_has_the_zeros_of_the_prox():
    algorithm = snapshots(regularizer=L1(1.0))
    *_, (replica, _, server) = islice(play(algorithm, PROBLEM), 60)
    trained = algorithm.trained(replica, server)
    assert int((trained == 0).sum()) > 3
    assert not bool((replica["z"] == 0).any())


def test_what_the_control_loses_matters_for_local_steps_alone():
    """At the solution c is not 0 but a subgradient of -h, and clients who know only part of it walk away from z.

    Where some are away it also moves what the server knows of them (test_fixed_points_partial.py).
    """
    one_step = {"local_steps": 1, "local_lr": K * COMMON["local_lr"]}
    assert settle(snapshots(model_bits=0, **one_step), PROBLEM, 1500, 1e-10)[1] <= 1e-10
    assert settle(snapshots(model_bits=0, regularizer=Zero()), PROBLEM, 1500, 1e-10)[1] <= 1e-10
    assert 1e-3 < settle(snapshots(model_bits=0), PROBLEM, 1000, 1e-10)[1] < 0.1


def test_what_the_bits_leave_shrinks_with_them():
    """Gradients are taken where the coded z is: the model ends as far away as that, and no further with more bits."""
    left = []
    for bits in (1, 2, 4):
        played = islice(play(snapshots(model_bits=bits), PROBLEM), 400)
        sizes = [PROBLEM.stationarity(server["z"], snapshots()) for _, _, server in played]
        left.append(float(torch.tensor(sizes[-200:]).median()))
    assert left[0] > 1.4 * left[1] > 2 * left[2] > 0


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_error_of_a_coded_model_is_that_of_the_code(bits):
    start, z = torch.randn(2, 8192, generator=torch.Generator().manual_seed(1)).double()
    z = 0.7 * start + 0.3 * z
    left = z - decoded(coded(z, start, bits, key(3)), start)
    beyond = z - (z @ start) / (start @ start) * start
    unbiased = TYPICAL[bits] / (1 - TYPICAL[bits])
    assert float(left.square().sum() / beyond.square().sum()) == pytest.approx(unbiased, rel=0.05)


def test_the_start_is_told_for_nothing():
    """What everyone knows is not sent: z0, a multiple of it, or 0 where z0 is 0."""
    start = torch.linspace(-1, 1, 100)
    for z, at in ((start, start), (3 * start, start), (torch.zeros(100), torch.zeros(100))):
        assert torch.allclose(decoded(coded(z, at, 1, key(2)), at), z, atol=1e-6)
    z = torch.linspace(0, 2, 100)
    assert torch.equal(decoded(coded(z, torch.zeros(100), 0, key(2)), start), z)


def test_errors_of_many_rounds_average_out():
    start, z = torch.zeros(2048), torch.randn(2048, generator=torch.Generator().manual_seed(4))
    mean = sum(decoded(coded(z, start, 2, key(t)), start) for t in range(64)) / 64
    assert float((mean - z).norm() / z.norm()) < 1.5 * (TYPICAL[2] / (1 - TYPICAL[2]) / 64) ** 0.5


@pytest.mark.parametrize("options", [{"metric": "adam"}, {"control": "change", "participation": "averaged"}])
def test_what_needs_every_message_is_refused(options):
    with pytest.raises(ConfigError, match="increment or lossy"):
        snapshots(**options)


@pytest.mark.parametrize("compressor", [Identity(), TopK(ratio=0.3)])
def test_fedpaq_takes_its_steps_from_what_was_sent(compressor):
    """The server's z moves by the changes that clients make from the coded one, which any replica becomes."""
    algorithm = FedPAQ(**COMMON, compressor=compressor, model_bits=2)
    plain = FedPAQ(**COMMON, compressor=compressor)
    assert (algorithm.stands_alone, plain.stands_alone) == (True, False)
    z0 = PROBLEM.z0
    replica, server, z = algorithm.replica_init(z0), algorithm.server_init(z0), z0
    for t in range(5):
        at = {"z": replica["z"]}
        up, _ = plain.local(at, {}, PROBLEM.oracle, round_key(0, t, torch.arange(6)))
        z = plain.server_step({}, {"z": z}, received(up, t))[0]["z"].dense()
        again, _ = algorithm.local(replica, {}, PROBLEM.oracle, round_key(0, t, torch.arange(6)))
        down, server = algorithm.server_step(server, replica, received(again, t))
        replica = algorithm.advance(replica, down)
        assert torch.equal(algorithm.trained(replica, server), z)
        assert not torch.equal(replica["z"], z)
        assert all(torch.equal(v, replica[n]) for n, v in algorithm.advance(algorithm.replica_init(z0), down).items())


def test_fedpaq_with_a_server_update_and_a_coded_model():
    algorithm = FedPAQ(**COMMON, compressor=Identity(), model_bits=4, server_update=Momentum(momentum=0.5))
    *_, (_, _, server) = islice(play(algorithm, PROBLEM), 5)
    assert set(server) > {"z"}
