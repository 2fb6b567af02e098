"""Adapters on clients: a GPT is trained on one half of the standard library, and adapted to the other by low rank.

    python benchmarks/lora.py [--rounds 300] [--rank 8] [--seeds 0] [--only METHOD] [--cache FOLDER] [--small]
        [--out FOLDER]

Half of the library's packages, joined, train a small GPT in one place.  The other half is dealt to eight clients, who
have the trained model and send adapters alone: W + BA in every linear layer, with B = 0 at first (Hu et al., LoRA,
arXiv 2106.09685).  FedAvg sends them as they are; FedCEF compresses both ways.  The question is what each has sent for
the same loss on held-out files: that of FedAvg in the end, or the lowest that the other reaches, for which FedAvg is
stopped as soon as it is there.  Some ten minutes a seed on one core; `--cache` keeps the trained model and every run
that has ended, for this code, so that a study can be taken up again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
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
    pretraining: int = 100  # rounds of 20 steps
    tokens: int = 250_000  # of each client


class Point(NamedTuple):
    """After how many rounds, what all clients together had sent and received, and the test loss that it had led to."""

    rounds: int
    up: int
    down: int
    loss: float

    @property
    def sent(self) -> int:
        """Bytes both ways."""
        return self.up + self.down


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
    points = [Point(0, 0, 0, evaluator(simulation.model())["test_loss"])]
    for t in range(1, rounds + 1):
        simulation.step()
        if t % max(1, rounds // 30) == 0 or t == rounds:
            totals = simulation.ledger.totals()
            loss = evaluator(simulation.model())["test_loss"]
            points.append(Point(t, totals["wire_up_bytes"], totals["wire_down_bytes"], loss))
    return simulation, points


def pretrained(size: Size, documents: Sequence[Document], seed: int, cache: Path | None = None) -> nn.Module:
    """A GPT that knows one half: AdamW in one place.  What is in the cache already is not trained again."""
    torch.manual_seed(seed)
    model = GPT((size.context,), vocabulary=256, layers=size.layers, heads=4, width=size.width)
    text = texts([documents], CLIENTS * size.tokens)
    kept = cache / f"gpt-{digest(size, seed, text)}.pt" if cache else None
    if kept and kept.exists():
        model.load_state_dict(torch.load(kept))
        return model
    data = from_texts(text, context=size.context)
    method = FedAvg(local_lr=3e-3, local_steps=20, local_update=AdamW(memory="client", warmup=50, schedule="cosine"))
    problem = Problem.build(model, next_token_loss, data, data.samples(0, 64))
    simulation, _ = trained(problem, method, size.pretraining, 16, seed)
    model.load_state_dict(problem.state_dict(simulation.model()))
    if kept:
        torch.save(model.state_dict(), kept)
    return model


def adapting(problem: Problem, method: Algorithm, rounds: int, seed: int, cache: Path | None) -> list[Point]:
    """The path of a run, or the one that is in the cache."""
    kept = cache / f"path-{digest(problem.dim, problem.z0.tolist(), method, rounds, seed)}.json" if cache else None
    if kept and kept.exists():
        return [Point(*point) for point in json.loads(kept.read_text())]
    _, points = trained(problem, method, rounds, 4, seed)
    if kept:
        kept.write_text(json.dumps(points))
    return points


def digest(*parts: object) -> str:
    """A short name for these."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def methods(rounds: int) -> dict[str, tuple[Algorithm, int]]:
    """What is compared, and for how many rounds; step sizes, ratios and rounds were chosen with seed 101."""

    def local(local_lr: float, final: float) -> dict[str, Any]:
        update = AdamW(memory="client", warmup=20, schedule="cosine", final=final)
        return {"local_steps": 10, "local_lr": local_lr, "local_update": update}

    signs = TopK(ratio=0.05, values="sign")
    ways: dict[str, Any] = {"compressor": signs, "down_compressor": signs, "downlink": "lossy"}
    return {
        "FedAvg": (FedAvg(**local(2e-2, 0.1)), rounds),
        "FedCEF, 5% both ways": (
            FedCEF(**local(1e-2, 0.03), **ways, control="change", index_code="context"),
            8 * rounds // 5,
        ),
    }


def problem_of(size: Size, rank: int, seed: int, cache: Path | None) -> Problem:
    """The trained model with adapters, for eight clients with what it has not seen."""
    known, unknown = halves()
    model = pretrained(size, known, seed, cache)
    train, test = hold_out(unknown, 0.1)
    torch.manual_seed(seed)
    model = adapted(model, rank)
    data = from_texts(texts(deal_parts(train, CLIENTS), size.tokens), context=size.context)
    tested = from_texts(texts([test], size.tokens), context=size.context).samples(0, 256)
    problem = Problem.build(model, next_token_loss, data, tested)
    print(f"{problem.dim:,} parameters of adapters beside {sum(p.numel() for p in model.parameters()):,} in all")
    return problem


def reached(points: Sequence[Point], target: float) -> Point:
    """Where the test loss was first no more than the target, which is met somewhere."""
    return next(point for point in points if point.loss <= target)


def compared(paths: dict[str, list[Point]]) -> dict[str, dict[str, float]]:
    """For every method the level that it and FedAvg both reach, the bytes of both until then, and their ratio."""
    usual = paths["FedAvg"]
    found = {}
    for name, points in paths.items():
        level = max(min(point.loss for point in points), usual[-1].loss)
        mine, theirs = reached(points, level), reached(usual, level)
        gain = theirs.sent / max(1, mine.sent)
        found[name] = {"loss": points[-1].loss, "level": level, "up": mine.up, "down": mine.down, "rounds": mine.rounds}
        found[name] |= {"fedavg": theirs.sent, "fedavg_rounds": theirs.rounds, "gain": gain}
    return found


def in_words(row: dict[str, float]) -> str:
    """What was reached at the end, and what had been sent at the level that both reach."""
    up, down, usual = (row[name] / 1e6 for name in ("up", "down", "fedavg"))
    sent = f"{row['level']:.4f} after {up:.3f} MB up and {down:.3f} down, FedAvg after {usual:.1f}"
    return f"{row['loss']:.4f} at the end; {sent}: {row['gain']:.0f}x"


def table(result: dict[str, Any]) -> str:
    """The record as a table: means over seeds, and each of them."""
    rows = ["| | rounds | test loss at the end | both reach | up | down | FedAvg, stopped there | fewer bytes |"]
    rows.append("|---|---:|---|---|---:|---:|---:|---|")
    runs = list(result["seeds"].values())
    for name, points in runs[0]["paths"].items():
        found = [run["compared"][name] for run in runs]
        loss, level, gain = (
            _each(found, key, form) for key, form in (("loss", ".3f"), ("level", ".3f"), ("gain", ".0f"))
        )
        up, down, usual = (fmean(row[key] for row in found) / 1e6 for key in ("up", "down", "fedavg"))
        sent = f"{up:.3g} MB | {down:.3g} MB | {usual:.3g} MB"
        rows.append(f"| {name} | {points[-1][0]} | {loss} | {level} | {sent} | {gain} |")
    return "\n".join(rows)


def _each(found: Sequence[dict[str, float]], key: str, form: str) -> str:
    values = [row[key] for row in found]
    return f"**{fmean(values):{form}}** ({', '.join(f'{value:{form}}' for value in values)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300, help="of FedAvg; the others have more, by their ratios")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", action="append", metavar="METHOD", help="this one beside FedAvg; may be repeated")
    parser.add_argument("--cache", type=Path, help="a folder for trained models and runs that have ended")
    parser.add_argument("--small", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("--out", type=Path, help="a folder for the record")
    arguments = parser.parse_args()
    size = Size(context=16, layers=1, width=32, pretraining=2, tokens=5000) if arguments.small else Size()
    rounds = 5 if arguments.small else arguments.rounds
    if arguments.cache:
        arguments.cache.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": machine(), "rank": arguments.rank, "seeds": {}}
    for seed in arguments.seeds:
        problem = problem_of(size, arguments.rank, seed, arguments.cache)
        paths: dict[str, list[Point]] = {}
        for name, (method, n) in methods(rounds).items():
            if name in ("FedAvg", *(arguments.only or methods(rounds))):
                paths[name] = adapting(problem, method, n, seed, arguments.cache)
                print(f"  seed {seed}, {name:22} {in_words(compared(paths)[name])}", flush=True)
        result["parameters"] = problem.dim
        result["seeds"][str(seed)] = {"compared": compared(paths), "paths": paths}
    print(table(result))
    if arguments.out:
        write("lora", result, arguments.out)


if __name__ == "__main__":
    main()
