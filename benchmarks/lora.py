"""Adapters on clients: a GPT is trained on one half of the standard library, and adapted to the other by low rank.

    python benchmarks/lora.py [--rounds 30] [--rank 4] [--seed 0] [--small] [--out FOLDER]

Half of the library's packages, joined, train a small GPT in one place.  The other half is dealt to eight clients, who
have the trained model and send adapters alone: W + BA in every linear layer, with B = 0 at first (Hu et al., LoRA,
arXiv 2106.09685).  FedAvg sends them as they are; FedCEF compresses both ways.  The question is what each has sent for
the same loss on held-out files: that of FedAvg in the end, or the lowest that the other reaches.  Minutes on a CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from measure import machine, write
from torch import Tensor, nn

from fedcef import FedAvg, FedCEF, Problem
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import TopK
from fedcef.core.training import Training
from fedcef.optimizers import AdamW
from fedcef.problems.fitting import fitted
from fedcef.problems.models import GPT
from fedcef.problems.text import from_texts, next_token_loss
from fedcef.problems.text.corpus import Document, deal_parts, hold_out
from fedcef.problems.text.stdlib import read_stdlib
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.simulation import Simulation

CLIENTS = 8


@dataclass(frozen=True)
class Size:
    """How large all of it is."""

    context: int = 64
    layers: int = 2
    width: int = 64
    pretraining: int = 30  # rounds of 20 steps
    tokens: int = 250_000  # of each client


class Point(NamedTuple):
    """What had been sent, up and down by all clients together, and the loss that it had led to."""

    sent: int
    loss: float


class Adapter(nn.Module):
    """A frozen linear layer, and a trained product of low rank that is added to it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """As the layer does, and more."""
        return self.base(x) + x @ self.down.T @ self.up.T  # type: ignore[no-any-return]


def adapted(model: nn.Module, rank: int) -> nn.Module:
    """The model with all it has frozen, and an adapter in every linear layer of its blocks; changed in place."""
    model.requires_grad_(False)
    for module in [m for block in model.get_submodule("blocks").children() for m in block.modules()]:
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear):
                setattr(module, name, Adapter(layer, rank))
    return model


def halves() -> tuple[list[Document], list[Document]]:
    """The standard library in two halves of whole packages."""
    first, second = deal_parts(read_stdlib(), 2)
    return first, second


def texts(documents: Sequence[Sequence[Document]], tokens: int) -> list[bytes]:
    """What each client has, cut after so many bytes."""
    return [b"\0".join(d.content for d in mine)[:tokens] for mine in documents]


def trained(
    problem: Problem, method: Algorithm, rounds: int, batch_size: int, seed: int
) -> tuple[Simulation, list[Point]]:
    """A run, and the test loss with all that had been sent, about thirty times on the way."""
    options = Training(rounds=rounds, batch_size=batch_size, clip_norm=1.0, seed=seed)
    simulation = Simulation(problem, fitted(problem, method, rounds), options)
    evaluator = Evaluator(problem, method.step, train_samples=64)
    points = [Point(0, evaluator(simulation.model())["test_loss"])]
    for t in range(1, rounds + 1):
        simulation.step()
        if t % max(1, rounds // 30) == 0 or t == rounds:
            totals = simulation.ledger.totals()
            sent = totals["wire_up_bytes"] + totals["wire_down_bytes"]
            points.append(Point(sent, evaluator(simulation.model())["test_loss"]))
    return simulation, points


def pretrained(size: Size, documents: Sequence[Document], seed: int) -> nn.Module:
    """A GPT that knows one half: AdamW in one place."""
    torch.manual_seed(seed)
    model = GPT((size.context,), vocabulary=256, layers=size.layers, heads=4, width=size.width)
    data = from_texts(texts([documents], CLIENTS * size.tokens), context=size.context)
    method = FedAvg(local_lr=3e-3, local_steps=20, local_update=AdamW(memory="client", warmup=50, schedule="cosine"))
    problem = Problem.build(model, next_token_loss, data, data.samples(0, 64))
    simulation, _ = trained(problem, method, size.pretraining, 16, seed)
    model.load_state_dict(problem.state_dict(simulation.model()))
    return model


def methods(rounds: int) -> dict[str, tuple[Algorithm, int]]:
    """What is compared, and for how many rounds."""
    common: dict[str, Any] = {"local_steps": 10, "local_lr": 1e-2}
    update = AdamW(memory="client", warmup=20, schedule="cosine", final=0.1)

    def sparse(ratio: float) -> FedCEF:
        signs = TopK(ratio=ratio, values="sign")
        ways: dict[str, Any] = {"compressor": signs, "down_compressor": signs, "downlink": "lossy"}
        return FedCEF(**common, **ways, local_update=update, control="direction", index_code="context")

    return {
        "FedAvg": (FedAvg(**common, local_update=update), rounds),
        "FedCEF, 10% both ways": (sparse(0.1), 2 * rounds),
        "FedCEF, 5% both ways": (sparse(0.05), 3 * rounds),
    }


def bytes_at(points: Sequence[Point], target: float) -> int | None:
    """What had been sent when the test loss was first no more than the target."""
    return next((point.sent for point in points if point.loss <= target), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    size = Size(context=16, layers=1, width=32, pretraining=2, tokens=5000) if arguments.small else Size()
    rounds = 2 if arguments.small else arguments.rounds
    known, unknown = halves()
    model = pretrained(size, known, arguments.seed)
    train, test = hold_out(unknown, 0.1)
    torch.manual_seed(arguments.seed)
    model = adapted(model, arguments.rank)
    data = from_texts(texts(deal_parts(train, CLIENTS), size.tokens), context=size.context)
    tested = from_texts(texts([test], size.tokens), context=size.context).samples(0, 256)
    problem = Problem.build(model, next_token_loss, data, tested)
    print(f"{problem.dim:,} parameters of adapters beside {sum(p.numel() for p in model.parameters()):,} in all")
    paths = {name: trained(problem, method, n, 4, arguments.seed)[1] for name, (method, n) in methods(rounds).items()}
    target = paths["FedAvg"][-1].loss
    print(f"test loss {paths['FedAvg'][0].loss:.4f} before, {target:.4f} after {rounds} rounds of FedAvg")
    for name, points in paths.items():
        best = min(point.loss for point in points)
        level = max(best, target)  # what both reach
        sent, usual = bytes_at(points, level), bytes_at(paths["FedAvg"], level)
        assert sent is not None, "it reaches what it has reached"
        assert usual is not None, "FedAvg reaches its own target"
        gain = f"{level:.4f} after {sent / 1e6:.3f} MB, FedAvg after {usual / 1e6:.3f}: {usual / max(1, sent):.0f}x"
        print(f"  {name:24} at the end {points[-1].loss:.4f}; {gain}", flush=True)
    if arguments.out:
        write("lora", {"machine": machine(), "paths": paths, "parameters": problem.dim}, arguments.out)


if __name__ == "__main__":
    main()
