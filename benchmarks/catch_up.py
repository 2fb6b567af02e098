"""What it takes to bring a client up to date that was away for m rounds, in several exact ways and one that is not.

    python benchmarks/catch_up.py EXPERIMENT [--set KEY=VALUE ...] [--away 1 2 5 10 20 40] [--out FOLDER]

A run of FedCEF is simulated whose down-messages are sparse (`downlink = lossy` with a sparsifier) and coded in contexts
(`index_code = context`).  Of its end:

    frames      the m down-messages as they are: real bytes
    context     the same, each coded in the context of the replica before it: real bytes
    merged      all m in one message: the union of their supports once, how often and in which rounds each entry of it
                was sent, and the values; the ideal length of such a code, with a density for each parameter tensor
    overwrite   z and c at the union of the supports: ideal length of the indices, and 8 bytes an entry
    whole       the replica with all entries, and without its zeros: real bytes
    quantised   z and c without their zeros at 4 bits a value: ideal length of the indices; not exact

and, over the whole run, what went down to the run's own cohorts by the first three.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from measure import machine, write
from torch import Tensor

from fedcef.runs.experiments import load_settings
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.snapshots import snapshot, whole
from fedcef.wire import Sparse, as_values, frame_nbytes


def choices(n: int, k: int) -> float:
    """log2 of the number of ways to choose k of n."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


class Stream:
    """The down-messages of a run, and what each takes."""

    def __init__(self, simulation: Simulation, sizes: Sequence[int]) -> None:
        self.sizes, self.frames, self.context, self.values = sizes, [0], [0], [0.0]
        counts = [torch.zeros(simulation.problem.dim, dtype=torch.int16)]
        for _ in range(simulation.training.rounds):
            contexts = simulation.algorithm.contexts(simulation.replica)
            down = simulation.step()
            sent = down["increment"]
            if not isinstance(sent, Sparse):
                raise SystemExit("The down-messages must be sparse: take downlink = lossy with a sparsifier.")
            self.frames.append(self.frames[-1] + int(frame_nbytes(down)))
            self.context.append(self.context[-1] + int(frame_nbytes(down, contexts)))
            self.values.append(self.values[-1] + 8 * float(as_values(sent.values).nbytes()))
            counts.append(counts[-1].index_add(0, sent.indices.cpu(), torch.ones(len(sent.indices), dtype=torch.int16)))
        self.counts = torch.stack(counts)

    def times_sent(self, since: int, end: int) -> Tensor:
        """How often each entry was sent in these rounds, (p,)."""
        return (self.counts[end] - self.counts[since]).long()

    def merged(self, since: int, end: int) -> float:
        """The ideal length of one message for these rounds."""
        times, rounds = self.times_sent(since, end), end - since
        union = [int((part > 0).sum()) for part in times.split(list(self.sizes))]
        bits = self.values[end] - self.values[since]
        bits += sum(choices(size, count) for size, count in zip(self.sizes, union, strict=True))
        for often, entries in enumerate(times.bincount().tolist()):
            if often and entries:
                bits += entries * (math.log2(sum(union) / entries) + choices(rounds, often))
        return bits / 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("experiment")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--away", type=int, nargs="+", default=[1, 2, 5, 10, 20, 40])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    config = load_settings(arguments.experiment, arguments.changes)
    problem = config.build_problem()
    simulation = Simulation(problem, config.build_algorithm(problem), config)
    stream = Stream(simulation, [tensor.numel() for tensor in problem.state_dict(problem.z0).values()])

    end, p, replica = config.rounds, problem.dim, simulation.replica
    rows = []
    for m in (m for m in arguments.away if m <= end):
        union = int((stream.times_sent(end - m, end) > 0).sum())
        rows.append(
            {
                "away": m,
                "union": union / p,
                "frames": stream.frames[end] - stream.frames[end - m],
                "context": stream.context[end] - stream.context[end - m],
                "merged": round(stream.merged(end - m, end)),
                "overwrite": round(choices(p, union) / 8 + 8 * union),
            }
        )
        print(rows[-1], flush=True)
    kept = [int((replica[name] != 0).sum()) for name in ("z", "c")]
    state = {
        "density": [count / p for count in kept],
        "whole": int(frame_nbytes(whole(replica))),
        "without_zeros": int(frame_nbytes(snapshot(replica))),
        "quantised": round(sum(choices(p, count) + 4 * count for count in kept) / 8),
    }
    print(state)

    have, totals = [0] * problem.num_clients, {"fresh": 0, "frames": 0, "context": 0, "merged": 0.0}
    for t in range(1, end + 1):
        for client in simulation.engine.rounds.cohort(t).tolist():
            totals["fresh"] += stream.frames[t] - stream.frames[t - 1]
            totals["frames"] += stream.frames[t] - stream.frames[have[client]]
            totals["context"] += stream.context[t] - stream.context[have[client]]
            totals["merged"] += stream.merged(have[client], t)
            have[client] = t
    totals["merged"] = round(totals["merged"])
    print(totals, simulation.ledger.totals())
    write(
        "catch_up",
        {
            "machine": machine(),
            "experiment": arguments.experiment,
            "set": arguments.changes,
            "away": rows,
            "replica": state,
            "run": totals,
            "ledger": simulation.ledger.totals(),
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
