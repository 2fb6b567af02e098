"""Which rule two lines should follow on the way up: what a node does about what compression leaves out.

    python benchmarks/flower_two_lines_rules.py [--write]

    forgotten   nothing
    memory      it is added to the next message (error feedback); this is what `compressed()` does
    estimate    server and node keep an estimate of the node's change, and the difference to it is sent (EF21)

The network of examples/flower_quickstart_numpy on MNIST, ten nodes of 800 images, 40 rounds, on three seeds that no
reported run uses; all nodes in every round, or five of ten.  Without Flower: all are vectors in this process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, write

from fedcef.compressors import Compressor
from fedcef.core.rng import Key
from fedcef.flower.two_lines.notation import compressor

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "flower_quickstart_numpy"))
from quickstart_numpy import task  # type: ignore[import-not-found]  # an example, not a package

NODES, ROUNDS, LR = 10, 40, 0.1
SEEDS = (101, 102, 103)
NO_KEY = Key(torch.tensor(0), torch.tensor(0))
Vector = torch.Tensor


def forgotten(code: Compressor, change: Vector, kept: Vector) -> tuple[Vector, Vector]:
    """What the server gets, and what the node keeps."""
    return code.compress(change, NO_KEY).dense(), kept


def memory(code: Compressor, change: Vector, kept: Vector) -> tuple[Vector, Vector]:
    """What the server gets, and what the node keeps."""
    total = change + kept
    sent = code.compress(total, NO_KEY).dense()
    return sent, total - sent


def estimate(code: Compressor, change: Vector, kept: Vector) -> tuple[Vector, Vector]:
    """What the server gets, and what the node keeps."""
    better = kept + code.compress(change - kept, NO_KEY).dense()
    return better, better


RULES: dict[str, Callable[[Compressor, Vector, Vector], tuple[Vector, Vector]]] = {
    "forgotten": forgotten,
    "memory": memory,
    "estimate": estimate,
}


def accuracy(rule: str | None, up: str, down: str, seed: int, cohort: int) -> float:
    """Of a run's last model on the test set; without a rule, without compression."""
    rng = np.random.default_rng(seed)
    first = task.first_arrays(seed)
    shapes = [array.shape for array in first]
    cuts = np.cumsum([array.size for array in first])[:-1]
    x = torch.from_numpy(np.concatenate([array.reshape(-1) for array in first]))
    r, kept = x.clone(), [torch.zeros_like(x) for _ in range(NODES)]
    for number in range(ROUNDS):
        r = x.clone() if rule is None or not number else r + compressor(down).compress(x - r, NO_KEY).dense()
        given = [part.reshape(shape) for part, shape in zip(np.split(r.numpy(), cuts), shapes, strict=True)]
        changes = []
        for node in sorted(rng.choice(NODES, cohort, replace=False)):
            (images, labels), _ = task.partition(int(node), NODES, 1000)
            after, _ = task.train(given, images, labels, LR, [seed, int(node), number])
            change = torch.from_numpy(np.concatenate([array.reshape(-1) for array in after])) - r
            if rule is not None:
                change, kept[node] = RULES[rule](compressor(up), change, kept[node])
            changes.append(change)
        x = x + torch.stack(changes).mean(0)
    arrays = [part.reshape(shape) for part, shape in zip(np.split(x.numpy(), cuts), shapes, strict=True)]
    _, _, images, labels = task.mnist()
    return float(task.test(arrays, images, labels)[1])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="add to benchmarks/results/flower_two_lines.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for cohort in (NODES, NODES // 2):
        for rule in (None, *RULES):
            up, down = "topk(0.01, sign)", "topk(0.02, sign)"
            found = [accuracy(rule, up, down, seed, cohort) for seed in SEEDS]
            print(
                f"  {cohort:2} nodes a round  {rule or 'not compressed':14}  {100 * statistics.mean(found):.2f}%",
                flush=True,
            )
            rows.append({"cohort": cohort, "rule": rule, "up": up, "down": down, "accuracy": found})
    if arguments.write:
        path = Path(__file__).parent / "results" / "flower_two_lines.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        write("flower_two_lines", {**known, "machine": machine(), "rules": rows})


if __name__ == "__main__":
    main()
