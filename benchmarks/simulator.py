"""Seconds per round of the simulator against a plain PyTorch loop over the same clients, in one interleaved run.

    python benchmarks/simulator.py [--rounds 3] [--repeats 5] [--write]

The task is FedCEF (Top-10%, ℓ1) with the paper's MNIST network, 10 clients, 10 local steps of batch 64, on random
images: arithmetic does not depend on what they show.  Variants are run in turn within each repeat; reported are
medians and the ratio of medians.
"""

from __future__ import annotations

import argparse

import torch
from measure import interleaved, machine, table, write
from plain_loop import PlainLoop, plain_cnn
from torch import nn

from fedcef import L1, FedCEF, Problem, TopK
from fedcef.problems.models import MnistCNN
from fedcef.simulation.simulation import Simulation

CLIENTS, STEPS, BATCH, LR, LAMBDA, RATIO = 10, 10, 64, 0.01, 1e-5, 0.1


def problem() -> Problem:
    generator = torch.Generator().manual_seed(0)
    data = [
        (
            torch.randn(500, 1, 28, 28, generator=generator),
            torch.randint(0, 10, (500,), generator=generator),
        )
        for _ in range(CLIENTS)
    ]
    torch.manual_seed(0)
    return Problem.build(MnistCNN((1, 28, 28), 10), nn.functional.cross_entropy, data, regularizer=L1(LAMBDA))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds in one measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/simulator.json")
    arguments = parser.parse_args()

    task = problem()
    algorithm = FedCEF(local_lr=LR, local_steps=STEPS, compressor=TopK(ratio=RATIO), regularizer=task.regularizer)
    network = plain_cnn(1, ((32,), (64,)), 3136, 128)
    plain = PlainLoop(task, network, local_lr=LR, local_steps=STEPS, batch=BATCH, ratio=RATIO)
    variants = {"plain loop": plain.round} | {
        f"fedcef, {kind}": Simulation(task, algorithm, batch_size=BATCH, oracle=kind).step
        for kind in ("loop", "layered", "stacked")
    }
    for play in variants.values():
        play()  # warm-up
    about = f"FedCEF, MNIST network, {CLIENTS} clients x {STEPS} steps x batch {BATCH}"
    print(f"{about}; {machine()}")
    result = table(interleaved(variants, arguments.rounds, arguments.repeats), "plain loop")
    if arguments.write:
        write("simulator", {"task": about, "machine": machine(), "rounds_per_measurement": arguments.rounds, **result})


if __name__ == "__main__":
    main()
