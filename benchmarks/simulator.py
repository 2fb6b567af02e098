"""Seconds per round of the simulator against a plain PyTorch loop over the same clients, in one interleaved run.

    python benchmarks/simulator.py [--rounds 3] [--repeats 5] [--write]

The task is FedCEF (Top-10%, ℓ1) with the paper's MNIST network, 10 clients, 10 local steps of batch 64, on random
images: arithmetic does not depend on what they show.  The plain loop is what one would write first: the network as
Conv-ReLU-Pool in the default memory format, one client after the other with all of torch's threads, gradients by
backward(), the same corrections, proximal steps and Top-k on flat vectors.  Variants are run in turn within each
repeat, so that whatever else the machine does hits all of them; reported are medians and the ratio of medians.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from fedcef import L1, FedCEF, Problem, TopK
from fedcef.problems.models import MnistCNN
from fedcef.runs.run import versions
from fedcef.simulation.engine import Simulation
from fedcef.threads import cores

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


class Ours:
    def __init__(self, task: Problem, oracle: str) -> None:
        algorithm = FedCEF(local_lr=LR, local_steps=STEPS, compressor=TopK(ratio=RATIO), regularizer=task.regularizer)
        self.simulation = Simulation(task, algorithm, batch_size=BATCH, oracle=oracle)  # type: ignore[arg-type]

    def round(self) -> None:
        self.simulation.step()


class PlainLoop:
    """FedCEF as a straightforward loop."""

    def __init__(self, task: Problem) -> None:
        self.task = task
        self.model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip
        self.z, self.c = task.z0.clone(), torch.zeros_like(task.z0)
        self.c_i = [torch.zeros_like(self.z) for _ in range(CLIENTS)]

    def gradient(self, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        nn.utils.vector_to_parameters(x, self.model.parameters())
        self.model.zero_grad()
        nn.functional.cross_entropy(self.model(inputs), targets).backward()
        return torch.cat([p.grad.reshape(-1) for p in self.model.parameters() if p.grad is not None])

    def round(self) -> None:
        prox, total = self.task.regularizer.prox, torch.zeros_like(self.z)
        for i in range(CLIENTS):
            samples = self.task.client_samples(i)
            x_hat, x, mean = self.z.clone(), self.z, torch.zeros_like(self.z)
            for k in range(STEPS):
                rows = torch.randint(0, len(samples), (BATCH,))
                g = self.gradient(x, samples.inputs[rows], samples.targets[rows])
                mean += g / STEPS
                x_hat -= LR * (g + self.c - self.c_i[i])
                x = prox(x_hat, (k + 1) * LR)
            change = mean - self.c_i[i]
            kept = change.abs().topk(int(RATIO * len(change))).indices
            self.c_i[i][kept] += change[kept]
            total[kept] += change[kept]
        self.c += total / CLIENTS
        self.z = prox(self.z - LR * STEPS * self.c, LR * STEPS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds in one measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/simulator.json")
    arguments = parser.parse_args()

    task = problem()
    variants = {
        "plain loop": PlainLoop(task),
        "fedcef, loop": Ours(task, "loop"),
        "fedcef, stacked": Ours(task, "stacked"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for variant in variants.values():
        variant.round()  # warm-up
    for _ in range(arguments.repeats):
        for name, variant in variants.items():
            began = time.perf_counter()
            for _ in range(arguments.rounds):
                variant.round()
            seconds[name].append((time.perf_counter() - began) / arguments.rounds)

    medians = {name: statistics.median(times) for name, times in seconds.items()}
    result = {
        "task": f"FedCEF, MNIST network, {CLIENTS} clients x {STEPS} steps x batch {BATCH}",
        "machine": {"cores": cores(), "processor": _processor(), "system": platform.platform()},
        "versions": versions(),
        "rounds_per_measurement": arguments.rounds,
        "seconds_per_round": seconds,
        "median_s": medians,
        "speed_up_over_plain_loop": {name: medians["plain loop"] / s for name, s in medians.items()},
    }
    print(f"{result['task']}; {cores()} cores, {_processor()}, torch {torch.__version__}")
    for name, s in medians.items():
        spread = f"{min(seconds[name]):.2f}-{max(seconds[name]):.2f}"
        print(f"  {name:16} {s:6.3f} s a round ({spread})   {medians['plain loop'] / s:5.2f}x the plain loop")
    if arguments.write:
        path = Path(__file__).parent / "results" / "simulator.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or "unknown processor"


if __name__ == "__main__":
    main()
