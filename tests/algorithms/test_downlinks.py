"""FedCEF's ways down: without loss in the shortest form, and lossy with error feedback on the control."""

import numpy as np
import pytest
import torch

from fedcef.algorithms import EF21BC, FedCEF
from fedcef.compressors import Eden, Identity, RandK, TopK
from fedcef.core.rng import round_key
from fedcef.regularizers import L1
from fedcef.wire import FrameKind, decode, encode
from fedcef.wire.forms.relay import Relay

from .setting import Quadratics, deploy, received, settle, simulate

PROBLEM = Quadratics.random()
K = 5
COMMON = {"local_lr": 0.2 / (K * PROBLEM.smoothness), "local_steps": K, "regularizer": L1(0.1)}
TOP2 = TopK(ratio=0.1)


def lossy(up, down, **options):
    return FedCEF(**{**COMMON, "compressor": up, "downlink": "lossy", "down_compressor": down, **options})


def test_two_lossy_rounds_by_hand():
    """Two clients, three parameters, K = 1, both ways the largest entry; in plain NumPy."""
    a = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, 1.5]])  # f_i = Σ_j a_ij x_j²/2 - b_ij x_j
    b = np.array([[1.0, -1.0, 0.3], [0.5, 2.0, -0.7]])
    step, weight = 0.1, 0.05
    z, c, c_hat, c_i = np.array([0.4, -0.2, 0.1]), np.zeros(3), np.zeros(3), np.zeros((2, 3))

    def largest(x):
        kept = np.zeros_like(x)
        kept[np.abs(x).argmax()] = x[np.abs(x).argmax()]
        return kept

    problem = Quadratics(torch.diag_embed(torch.from_numpy(a)), torch.from_numpy(b))
    top1 = TopK(ratio=0.34)
    algorithm = FedCEF(
        local_lr=step, local_steps=1, regularizer=L1(weight), compressor=top1, downlink="lossy", down_compressor=top1
    )
    z0 = torch.from_numpy(z.copy())
    replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    clients = {name: v.repeat(2, 1) for name, v in algorithm.client_init(z0).items()}
    for t in range(2):
        delta = np.array([largest(a[i] * z - b[i] - c_i[i]) for i in range(2)])
        c_i += delta
        c += delta.mean(0)
        c_hat += largest(c - c_hat)
        z_tilde = z - step * c_hat
        z = np.sign(z_tilde) * np.maximum(np.abs(z_tilde) - step * weight, 0)

        up, clients = algorithm.local(replica, clients, problem.oracle, round_key(0, t, torch.arange(2)))
        down, server = algorithm.server_step(server, replica, received(up, t))
        replica = algorithm.advance(replica, down)
        for found, expected in ((replica["z"], z), (replica["c"], c_hat), (server["c"], c), (clients["c_i"], c_i)):
            assert np.abs(found.numpy() - expected).max() <= 1e-15


@pytest.mark.parametrize("down", [TOP2, RandK(ratio=0.3), TopK(ratio=0.1, values="uniform4"), Eden(bits=2)])
@pytest.mark.parametrize("mixing", [1.0, 0.5])
def test_both_ways_compressed_still_reach_the_solution(down, mixing):
    algorithm = lossy(TOP2, down, mixing=mixing)
    exact = not isinstance(down, Eden) and getattr(down, "values", "native") == "native"
    # float32 on the wire leaves its rounding, which error feedback carries along but cannot undo at once
    tolerance = 1e-10 if exact else 1e-6
    assert settle(algorithm, PROBLEM, 1500, tolerance)[1] <= tolerance


def test_a_downlink_that_loses_nothing_is_the_increment():
    plain = simulate(FedCEF(**COMMON, compressor=TOP2), PROBLEM, 50)
    lossless = simulate(lossy(TOP2, Identity()), PROBLEM, 50)
    gap = max(float((a - b).abs().max()) for a, b in zip(plain.points, lossless.points, strict=True))
    assert gap <= 1e-13


def test_without_local_steps_it_is_ef21_bc():
    common = {"local_lr": 0.02, "local_steps": 1, "regularizer": L1(0.1), "compressor": TOP2}
    ours = FedCEF(**common, downlink="lossy", down_compressor=TopK(ratio=0.2))
    theirs = EF21BC(**common, down_ratio=0.2)
    for a, b in zip(simulate(ours, PROBLEM, 60).points, simulate(theirs, PROBLEM, 60).points, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("down", "values"),
    [
        (TOP2, "native"),
        (TopK(ratio=0.2, values="log3"), "uniform4"),
        (Eden(bits=1), "sign"),
        *((None, values) for values in ("native", "uniform4", "sign")),
    ],
)
def test_everyone_has_the_same_replica_bit_for_bit(down, values):
    """In float32 and through bytes, whichever form the shortest is."""
    problem = Quadratics.random(dtype=torch.float32)
    up = TopK(ratio=0.2, values=values)
    algorithm = FedCEF(**COMMON, compressor=up) if down is None else lossy(up, down)
    replicas, clients, server = deploy(algorithm, problem, 15)
    for replica in replicas:
        assert all(torch.equal(replica[name], server[name]) for name in server)
    simulated = simulate(algorithm, problem, 15)
    assert torch.allclose(simulated.replica["z"], server["z"], rtol=1e-5, atol=1e-6)
    if down is None:
        mean = torch.stack([client["c_i"] for client in clients]).mean(0)
        assert torch.allclose(mean, server["c"], rtol=0, atol=1e-5)


def test_what_the_clients_sent_is_passed_on_where_that_is_shorter():
    """One-bit values: twelve clients' signs are shorter than the float32 mean of them."""
    problem = Quadratics.random(clients=4, dim=400, dtype=torch.float32)
    algorithm = FedCEF(**COMMON, compressor=TopK(ratio=0.2, values="sign", block=0))
    z0 = problem.z0
    replica, clients = algorithm.replica_init(z0), {n: v.repeat(4, 1) for n, v in algorithm.client_init(z0).items()}
    up, _ = algorithm.local(replica, clients, problem.oracle, round_key(0, 0, torch.arange(4)))
    down, _ = algorithm.server_step({}, replica, received(up))
    frame = encode(down, FrameKind.DOWN, 0)
    assert isinstance(decode(frame).message["increment"], Relay)
    assert torch.equal(decode(frame).message["increment"].dense(), down["increment"].dense())

    exact = FedCEF(**COMMON, compressor=TopK(ratio=0.2))
    up, _ = exact.local(replica, clients, problem.oracle, round_key(0, 0, torch.arange(4)))
    down, _ = exact.server_step({}, replica, received(up))
    assert not isinstance(decode(encode(down, FrameKind.DOWN, 0)).message["increment"], Relay)
