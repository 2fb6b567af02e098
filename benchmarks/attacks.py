"""What robust rules are worth: accuracy of FedAvg and of compressed FedCEF when a fifth of the clients lie.

python benchmarks/attacks.py --seeds 1 2 3     (7 minutes of one core; cells that are there are left)
python benchmarks/attacks.py --table           (the tables of docs/robustness.md, from benchmarks/results/attacks.json)

Digits, 10 clients of unlike labels (Dirichlet, α = 0.5), a network with two hidden layers of 64 (p = 8,970), 60 rounds
of 5 local steps.  FedCEF sends Top-10% up and its increments down.  Step sizes are the same everywhere, and rules and
attacks have their defaults, but for sign_flip: with 1 and two liars of ten, a mean only loses 40% of its length.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from fedcef.core.attack import Attack
from fedcef.runs.settings import Settings
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.simulation import Simulation

RESULTS = Path(__file__).parent / "results" / "attacks.json"
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"algorithm": {"name": "fedavg"}},
    "FedCEF, Top-10%": {"algorithm": {"name": "fedcef"}, "compressor": {"name": "topk", "ratio": 0.1}},
}
RULES = ("mean", "trimmed_mean", "median", "norm_clipping", "geometric_median")
UNLIKE = "nobody lies, α = 0.1"
"""With clients that differ more."""
ATTACKS: dict[str, dict[str, Any] | None] = {
    "nobody lies": None,
    UNLIKE: None,
    "sign_flip ×5": {"name": "sign_flip", "strength": 5.0},
    "scaling ×100": {"name": "scaling"},
    "label_flip": {"name": "label_flip"},
    "a_little": {"name": "a_little"},
    "inner_product ×10": {"name": "inner_product"},
}
WITHOUT = "without the liars"
"""The clients that do not lie, by themselves: what a rule that finds all liars would come to."""


def settings(seed: int, method: str, rule: str, attack: str) -> Settings:
    """One cell of the table."""
    common: dict[str, Any] = {
        "seed": seed,
        "rounds": 60,
        "num_clients": 10,
        "local_steps": 5,
        "local_lr": 0.1,
        "batch_size": 32,
        "regularizer": {"name": "l1", "weight": 1e-5},
        "data": {"name": "digits", "partition": "dirichlet", "alpha": 0.1 if attack == UNLIKE else 0.5},
        "model": {"name": "mlp"},
    }
    return Settings(**{**common, **METHODS[method], "aggregation": rule, "attack": ATTACKS.get(attack)})


def missing(seeds: list[int], cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The cells that are not there yet, one by one; a run that overflowed has the accuracy of a guess."""
    for seed in seeds:
        everyone = settings(seed, "FedAvg", "mean", "nobody lies").build_problem()
        lying = Attack(name="scaling").members(everyone.num_clients, seed)
        honest = replace(everyone, data=everyone.data.only((~lying).nonzero().flatten().tolist()))
        other = {WITHOUT: honest, UNLIKE: settings(seed, "FedAvg", "mean", UNLIKE).build_problem()}
        for method, rule, attack in [*product(METHODS, RULES, ATTACKS), *product(METHODS, ["mean"], [WITHOUT])]:
            cell: dict[str, Any] = {"seed": seed, "method": method, "rule": rule, "attack": attack}
            if any(cell.items() <= known.items() for known in cells):
                continue
            options, problem = settings(**cell), other.get(attack, everyone)
            algorithm = options.build_algorithm(problem)
            simulation = Simulation(problem, algorithm, options)
            for _ in range(options.rounds):
                simulation.step()
            finite = bool(simulation.state.finite)
            accuracy = Evaluator(problem, algorithm.step)(simulation.model())["accuracy"] if finite else 0.1
            down = simulation.ledger.totals()["wire_down_bytes"]
            yield {**cell, "accuracy": round(float(accuracy), 4), "down_bytes": int(down)}


def tables(cells: list[dict[str, Any]]) -> str:
    """Mean accuracy and the lowest of the seeds, for each method; and the bytes down of FedCEF when nobody lies."""
    lines = []
    for method in METHODS:
        lines += [f"**{method}**", "", f"| rule | {' | '.join(ATTACKS)} |", "|---|" + "---:|" * len(ATTACKS)]
        for rule in RULES:
            row = []
            for attack in ATTACKS:
                wanted = {"method": method, "rule": rule, "attack": attack}
                own = [cell["accuracy"] for cell in cells if wanted.items() <= cell.items()]
                row.append(f"{100 * mean(own):.1f} ({100 * min(own):.1f})")
            lines.append(f"| `{rule}` | {' | '.join(row)} |")
        lines.append("")
    for method in METHODS:
        own = [c["accuracy"] for c in cells if c["method"] == method and c["attack"] == WITHOUT]
        lines.append(f"{WITHOUT}, {method}: {100 * mean(own):.1f} ({100 * min(own):.1f})")
    wanted = {"method": "FedCEF, Top-10%", "attack": "nobody lies"}
    for rule in RULES:
        sizes = [c["down_bytes"] for c in cells if {**wanted, "rule": rule}.items() <= c.items()]
        lines.append(f"bytes down, FedCEF, {rule}: {mean(sizes) / 1e6:.2f} MB")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[])
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = json.loads(options.out.read_text("utf-8")) if options.out.exists() else []
    for cell in missing(options.seeds, cells):
        print(*cell.values(), flush=True)
        cells.append(cell)
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in cells)
        options.out.write_text(f"[\n{lines}\n]\n", "utf-8")
    if options.table or options.seeds:
        print(tables(cells))


if __name__ == "__main__":
    main()
