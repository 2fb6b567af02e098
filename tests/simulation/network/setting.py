"""A small problem, and runs on networks."""

import torch

from fedcef.algorithms import FedAvg, FedCEF
from fedcef.compressors import TopK
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.05), num_clients=6, samples=30, dim=20, support=5, dtype=torch.float64)
COMMON = {"local_lr": 0.005, "local_steps": 3, "regularizer": PROBLEM.regularizer}
AT_ONCE = 1e30
"""bit/s with which bytes take no time: what they would take is below the last bit of a second."""


def fedavg(**options):
    return FedAvg(**{**COMMON, **options})


def fedcef(**options):
    return FedCEF(**{**COMMON, "compressor": TopK(ratio=0.2), **options})


def simulation(algorithm, network, problem=PROBLEM, **options):
    return Simulation(problem, algorithm, **{"batch_size": 5, "network": network, **options})


def played(algorithm, network, rounds=5, **options):
    run = simulation(algorithm, network, **options)
    clocks = []
    for _ in range(rounds):
        run.step()
        clocks.append(run.clock())
    return run, clocks


def same(one, other):
    """Whether two runs are in the same state but for the time."""
    mine, theirs = one.parts(), other.parts()
    parts = (mine.keys() | theirs.keys()) - {"network"}
    return all(
        mine[part].keys() == theirs[part].keys()
        and all(torch.equal(mine[part][name], theirs[part][name]) for name in mine[part])
        for part in parts
    )


def trace(tmp_path, *speeds, latency=0.0, up=AT_ONCE, down=AT_ONCE, windows=None):
    """A file with a client for each of these seconds per local step."""
    path = tmp_path / "trace.csv"
    lines = ["client,up,down,latency,speed,from,to"]
    for client, speed in enumerate(speeds):
        window = (windows or {}).get(client, ("", ""))
        lines.append(f"{client},{up},{down},{latency},{speed},{window[0]},{window[1]}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)
