"""What a coarse message about the model leaves out, if it is coded against a model that the client has (an anchor).

    python benchmarks/anchors.py EXPERIMENT [--set KEY=VALUE ...] [--age 1 5 10 20 40] [--every 5] [--out FOLDER]

A run of FedCEF is simulated.  Every few rounds its z is coded by `algorithms/coded_model.py` in 1 to 4 bits an entry:

    start     against z0, which everyone has: what `downlink = "snapshot"` sends
    exact     against the z of so many rounds ago, as if the client had it to the last bit
    told      against that z as it was told in 1, 2 or 4 bits an entry, which the client must have fetched, too (DoCoFL)

For each the energy of the error, in shares of the energy of z - a·z0, and the real bytes of the messages.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import torch
from measure import machine, write
from torch import Tensor

from fedcef.algorithms.coded_model import coded, decoded
from fedcef.core.rng import Key
from fedcef.runs.experiments import load_settings
from fedcef.simulation.simulation import Simulation
from fedcef.wire import frame_nbytes

BITS, ANCHOR_BITS = (1, 2, 3, 4), (1, 2, 4)


def told(z: Tensor, anchor: Tensor, bits: int, draw: int) -> tuple[Tensor, int]:
    """The model that a client has after a message coded against the anchor, and the bytes of that message."""
    key = torch.tensor(draw)
    message = coded(z, anchor, bits, Key(key, key))
    return decoded(message, anchor), int(frame_nbytes(message))


def energy(x: Tensor) -> float:
    return float(x.double().square().sum())


def measured(now: Tensor, past: dict[int, Tensor], start: Tensor, draw: int) -> dict[str, tuple[float, int]]:
    """By kind: the error's share of what is to be told, and bytes; `past` are earlier models by their age in rounds."""
    multiple = (now.double() @ start.double()) / energy(start)
    whole = energy(now - (multiple * start).to(now.dtype))
    anchors = {"start": (start, 0)}
    for age, model in past.items():
        anchors[f"exact {age}"] = (model, 0)
        for bits in ANCHOR_BITS:
            anchors[f"told {age} in {bits}"] = told(model, start, bits, draw - age)
    found = {}
    for name, (anchor, paid) in anchors.items():
        for bits in BITS:
            model, more = told(now, anchor, bits, draw)
            found[f"{name}: {bits}"] = (energy(model - now) / whole, paid + more)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("experiment")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--age", type=int, nargs="+", default=[1, 5, 10, 20, 40])
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    config = load_settings(arguments.experiment, arguments.changes)
    problem = config.build_problem()
    simulation = Simulation(problem, config.build_algorithm(problem), config)
    models, errors = [problem.z0.clone()], defaultdict(list)
    sizes: dict[str, int] = {}
    for t in range(1, config.rounds + 1):
        simulation.step()
        models.append(simulation.replica["z"].clone())
        if t <= max(arguments.age) or t % arguments.every:
            continue
        past = {age: models[t - age] for age in arguments.age}
        for name, (error, nbytes) in measured(models[t], past, models[0], t).items():
            errors[name].append(error)
            sizes[name] = nbytes
    rows = {name: {"error": sum(each) / len(each), "bytes": sizes[name]} for name, each in errors.items()}
    for name, row in rows.items():
        print(f"{name:22} {row['error']:8.2%} of the energy left, {row['bytes']:>9,} bytes")
    write(
        "anchors",
        {
            "machine": machine(),
            "experiment": arguments.experiment,
            "set": arguments.changes,
            "rounds": len(next(iter(errors.values()), [])),
            "rows": rows,
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
