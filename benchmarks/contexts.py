"""What an index costs in the messages of a run, by what sender and receiver both know (docs/wire.md).

python benchmarks/contexts.py mnist --rounds 65 --from 20 --set compressor.ratio=0.01 …
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import torch
from measure import machine, write
from torch import Tensor

from fedcef.core.precision import matrix_units
from fedcef.runs.experiments import load_settings
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Context, Payload, Sparse, as_values, faded


def bits(payload: Payload, context: Context | None) -> Tensor:
    """Bits for an index of each vector of a stack."""
    assert isinstance(payload, Sparse), "this experiment's messages are not sparse; take a Top-k both ways"
    indices = payload.nbytes_given(context) - as_values(payload.values).nbytes()
    return 8 * indices / payload.indices.shape[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("experiment")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first round that counts")
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, help="folder for contexts_EXPERIMENT.json; otherwise it is only printed")
    options = parser.parse_args()
    settings = load_settings(options.experiment, options.set)
    problem = settings.build_problem()
    simulation = Simulation(problem, settings.build_algorithm(problem), settings)
    activity = torch.zeros_like(problem.z0)
    costs = defaultdict(list)
    for number in range(options.rounds):
        counts = number >= options.first and number % options.every == 0
        c = simulation.replica["c"].clone()
        if counts:
            round_ = simulation.engine.rounds.at(number)
            c_i = simulation.state.clients.take(round_.clients)["c_i"]
            with torch.no_grad(), matrix_units(settings.precision), simulation.threads():
                delta = simulation.engine.work(simulation.state, round_)[0]["delta"]
            known = {
                "nothing": None,
                "c": (c,),
                "c, a": (c, activity),
                "c, c_i": (c, c_i),
                "c, a, c_i": (c, activity, c_i),
            }
            for name, statistics in known.items():
                costs["up", name].append(bits(delta, statistics and Context.of(*statistics)).mean())
        increment = simulation.step()["increment"]
        if counts:
            for name in ("nothing", "c", "c, a"):
                costs["down", name].append(bits(increment, known[name] and Context.of(*known[name])))
        activity = faded(activity, increment.dense())
    means = {" ".join(key): float(torch.stack(values).mean()) for key, values in costs.items()}
    for name, mean in means.items():
        print(f"{name:15} {mean:.2f} bits", flush=True)
    if options.out:
        counted = sum(1 for number in range(options.first, options.rounds) if number % options.every == 0)
        chosen = {"machine": machine(), "set": options.set, "from": options.first, "rounds": options.rounds}
        write(f"contexts_{options.experiment}", {**chosen, "counted": counted, "bits": means}, options.out)


if __name__ == "__main__":
    main()
