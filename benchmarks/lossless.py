"""Whether the lossless downlink is lossless over a whole run: coded and uncoded, side by side.

    python benchmarks/lossless.py EXPERIMENT [--rounds 400] [--set KEY=VALUE ...] [--out FOLDER]

Two simulations of FedCEF with `downlink = increment`.  The *coded* one sends the shortest of dense, sparse and relay;
after each round its down-message is encoded, and a follower that has seen nothing but these bytes decodes them and
advances its own replica.  The *uncoded* one broadcasts the increment as a dense vector of floats.  After every round
the replicas of all three are compared bit for bit, and the length of the frame with what the ledger counts.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import fields
from pathlib import Path

import torch
from measure import machine, write

from fedcef.algorithms import FedCEF
from fedcef.algorithms.algorithm import Message, Received, State
from fedcef.runs.experiments import load_settings
from fedcef.runs.settings import Settings
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Dense, FrameKind, decode, encode


class UncodedFedCEF(FedCEF):
    """FedCEF whose server broadcasts the increment as it is."""

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        return {"increment": Dense(received.share * received.mean["delta"])}, {}


def simulation(config: Settings, uncoded: bool) -> Simulation:
    problem = config.build_problem()
    algorithm = config.build_algorithm(problem)
    if not isinstance(algorithm, FedCEF) or algorithm.downlink != "increment":
        raise SystemExit("This compares the lossless downlink: take algorithm.name = fedcef, downlink = increment.")
    if uncoded:
        algorithm = UncodedFedCEF(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})
    return Simulation(problem, algorithm, config)


def equal(a: State, b: State) -> bool:
    return all(torch.equal(a[name].cpu().view(torch.int32), b[name].cpu().view(torch.int32)) for name in a)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("experiment")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    config = load_settings(arguments.experiment, arguments.changes)

    coded, uncoded = simulation(config, False), simulation(config, True)
    follower = {name: vector.clone() for name, vector in coded.replica.items()}
    differing = {"follower": 0, "uncoded": 0, "frame length": 0}
    forms: Counter[str] = Counter()
    before = 0
    for round_ in range(arguments.rounds):
        frame = encode(coded.step(), FrameKind.DOWN, round_)
        uncoded.step()
        message = {name: part.to(coded.problem.z0.device) for name, part in decode(frame).message.items()}
        forms[type(message["increment"]).__name__] += 1
        with torch.no_grad():
            follower = coded.algorithm.advance(follower, message)
        total = int(coded.ledger.totals()["wire_down_bytes"])
        differing["follower"] += not equal(coded.replica, follower)
        differing["uncoded"] += not equal(coded.replica, uncoded.replica)
        differing["frame length"] += total - before != len(frame) * coded.problem.num_clients
        before = total
        if (round_ + 1) % 50 == 0:
            print(f"round {round_ + 1}: rounds that differ {differing}, bytes {coded.ledger.totals()}", flush=True)
    write(
        "lossless",
        {
            "machine": machine(),
            "experiment": arguments.experiment,
            "set": arguments.changes,
            "rounds": arguments.rounds,
            "rounds_that_differ": differing,
            "forms": dict(forms),
            "coded": coded.ledger.totals(),
            "uncoded": uncoded.ledger.totals(),
        },
        arguments.out,
    )
    if any(differing.values()):
        raise SystemExit(f"Not lossless: {differing}")
    print(f"All {arguments.rounds} rounds equal, bit for bit; forms {dict(forms)}.")


if __name__ == "__main__":
    main()
