"""The simulator on a GPU: seconds per round against a plain eager loop, and its growth with clients and parameters.

    python benchmarks/gpu.py [--repeats 5] [--out FOLDER]

FedCEF (Top-1%, ℓ1, clipping) with the paper's CIFAR-10 network in bfloat16, 10 clients x 30 local steps of batch 64, on
random images.  All variants do the same arithmetic and are run in turn; times are the GPU's own, after a warm-up.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

import torch
from measure import interleaved, machine, table, timed, write
from plain_loop import PlainLoop, plain_cnn
from torch import nn

from fedcef import L1, FedCEF, Problem, TopK
from fedcef.problems.augment import CropFlip
from fedcef.problems.models import PaperCNN
from fedcef.simulation.simulation import Simulation

BLOCKS = ((64, 64), (128, 128))
STEPS, BATCH, LR, LAMBDA, RATIO, CLIP = 30, 64, 0.001, 1e-5, 0.01, 5.0


def problem(clients: int = 10, hidden: int = 512, samples: int = 500) -> Problem:
    generator = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(samples, 3, 32, 32, generator=generator), torch.randint(0, 10, (samples,), generator=generator))
        for _ in range(clients)
    ]
    torch.manual_seed(0)
    model = PaperCNN((3, 32, 32), 10, BLOCKS, hidden)
    regularizer = L1(LAMBDA)
    return Problem.build(model, nn.functional.cross_entropy, data, None, regularizer, CropFlip()).to("cuda")


def simulation(task: Problem, **options: object) -> Simulation:
    algorithm = FedCEF(local_lr=LR, local_steps=STEPS, compressor=TopK(ratio=RATIO), regularizer=task.regularizer)
    settings = {"batch_size": BATCH, "clip_norm": CLIP, "precision": "bfloat16", **options}
    return Simulation(task, algorithm, **settings)  # type: ignore[arg-type]


def variants(repeats: int) -> dict[str, object]:
    task = problem()
    network = plain_cnn(3, BLOCKS, 8192, 512)
    plain = PlainLoop(
        task, network, local_lr=LR, local_steps=STEPS, batch=BATCH, ratio=RATIO, clip_norm=CLIP, bfloat16=True
    )
    players = {
        "plain eager loop": plain.round,
        "fedcef, loop, eager": simulation(task, oracle="loop", cuda_graphs=False).step,
        "fedcef, loop, graph": simulation(task, oracle="loop").step,
        "fedcef, loop, graph, tf32": simulation(task, oracle="loop", precision="tf32").step,
        "fedcef, batched, graph (auto)": simulation(task).step,
    }
    for play in players.values():
        for _ in range(3):
            play()
    return table(interleaved(players, 2, repeats), "plain eager loop")


def growth() -> list[dict[str, float]]:
    rows = []
    for clients, hidden in [(10, 512), (20, 512), (50, 512), (100, 512), (10, 128), (10, 1024), (10, 2048)]:
        gc.collect()  # a simulation and its graph refer to each other
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        task = problem(clients, hidden)
        run = simulation(task)
        for _ in range(3):
            run.step()
        seconds = timed(run.step, 4)
        memory = torch.cuda.max_memory_allocated() / 2**30
        rows.append({"clients": clients, "parameters": task.dim, "seconds_per_round": seconds, "memory_gib": memory})
        per = 1e6 * seconds / (clients * STEPS)
        print(
            f"  N = {clients:3}  p = {task.dim:9,}  {seconds:.4f} s a round, "
            f"{per:6.1f} us a client step, {memory:6.2f} GiB"
        )
        del run
    return rows


def ceilings() -> dict[str, float]:
    """What this GPU reaches in a large matrix product and in a large copy."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    for _ in range(3):
        a @ b
        target.copy_(source)
    product, copy = timed(lambda: a @ b, 20), timed(lambda: target.copy_(source), 20)
    return {"bfloat16_tflops": 2 * 8192**3 / product / 1e12, "copy_tb_per_s": 2 * 4 * 2**30 / copy / 1e12}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to keep gpu.json; by default benchmarks/results")
    arguments = parser.parse_args()
    about = f"FedCEF r={RATIO}, CIFAR-10 network, 10 clients x {STEPS} steps x batch {BATCH}, bfloat16"
    print(f"{about}; {machine()}")
    result = {"task": about, "machine": machine(), "ceilings": ceilings(), **variants(arguments.repeats)}
    print(result["ceilings"])
    result["growth"] = growth()
    write("gpu", result, arguments.out)


if __name__ == "__main__":
    main()
