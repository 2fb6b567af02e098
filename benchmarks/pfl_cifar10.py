"""pfl-research's CIFAR-10 benchmark, dropout included: pfl-research itself and this simulator in turn, on a GPU.

    python benchmarks/pfl_cifar10.py [--rounds 20] [--repeats 5] [--random] [--out FOLDER]
    python benchmarks/pfl_cifar10.py --whole [--seeds 3] [--only NAME]

The first measures seconds per round: each contender plays three rounds to warm up (ours records the second as a CUDA
graph), then `rounds` at a time, in turn.  The second plays all 1,500 rounds for some seeds, tested every ten, and
tells how long that took and which accuracy was reached; ours also looks at the training loss of two users then.
pfl-research is no dependency of the project (pip install pfl).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import machine, table, write
from pfl_cnn import BATCH, COHORT, LR, OPTIONS, ROUNDS, USERS, images, method, network, problem
from torch import nn

from fedcef import run
from fedcef.simulation.simulation import Simulation

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OURS: dict[str, dict[str, Any]] = {
    "fedcef, float32": {"precision": "float32"},
    "fedcef, bfloat16": {"precision": "bfloat16"},
    "fedcef, bfloat16, loop": {"precision": "bfloat16", "oracle": "loop"},
}
EVERY = 10  # rounds between evaluations, as in pfl-research's settings


class Pfl:
    """pfl-research's own loop over a user's batches, its backend and its FedAvg, on data that lies on the GPU."""

    def __init__(self, seed: int = 0, random: bool = False) -> None:
        import numpy as np
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.aggregate.weighting import WeightByUser
        from pfl.data.federated_dataset import FederatedDataset
        from pfl.data.sampling import get_user_sampler
        from pfl.metrics import Weighted
        from pfl.model.pytorch import PyTorchModel

        np.random.seed(seed)  # noqa: NPY002 - which pfl-research draws users from
        users, test = images(seed, random)
        data = [(inputs.to(DEVICE), targets.to(DEVICE)) for inputs, targets in users]
        self.test = [part.to(DEVICE) for part in test]
        everyone = FederatedDataset.from_slices(data, get_user_sampler("random", range(USERS)))
        self.net = net = network(seed).to(DEVICE)

        def loss(inputs: torch.Tensor, targets: torch.Tensor, eval: bool = False) -> torch.Tensor:
            net.train(not eval)
            return nn.functional.cross_entropy(net(inputs), targets)

        net.loss = loss  # type: ignore[assignment]
        net.metrics = lambda inputs, targets: {"samples": Weighted(len(inputs), 1)}  # type: ignore[assignment]
        self.model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
        self.backend = SimulatedBackend(training_data=everyone, val_data=everyone, postprocessors=[WeightByUser()])

    def play(self, rounds: int, look: Callable[[int], None] = lambda round_: None) -> None:
        """Some more rounds; `look` is called after each."""
        from pfl.algorithm.base import NNAlgorithmParams
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.callback.base import TrainingProcessCallback
        from pfl.hyperparam import NNTrainHyperParams
        from pfl.metrics import Metrics

        class Look(TrainingProcessCallback):
            def after_central_iteration(self, *_: Any, central_iteration: int, **__: Any) -> tuple[bool, Metrics]:
                look(central_iteration)  # counted from 0
                return False, Metrics()

        FederatedAveraging().run(
            NNAlgorithmParams(rounds, evaluation_frequency=rounds, train_cohort_size=COHORT, val_cohort_size=0),
            self.backend,
            self.model,
            NNTrainHyperParams(local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=LR),
            callbacks=[Look()],
            send_metrics_to_platform=False,
        )

    @torch.no_grad()
    def accuracy(self) -> float:
        """On the test set."""
        inputs, targets = self.test
        self.net.eval()
        found = torch.cat([self.net(part).argmax(1) for part in inputs.split(1000)])
        return float((found == targets).float().mean())


def seconds(play: Callable[[], None]) -> float:
    """How long it takes until the device is done."""
    wait = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    play()
    wait()
    return time.perf_counter() - began


def steps(simulation: Simulation, rounds: int) -> None:
    """Some more rounds."""
    for _ in range(rounds):
        simulation.step()


def per_round(rounds: int, repeats: int, random: bool) -> dict[str, Any]:
    """Seconds per round, the contenders in turn."""
    task = problem(random=random).to(DEVICE)
    simulations = {name: Simulation(task, method(task), **OPTIONS, **options) for name, options in OURS.items()}
    players: dict[str, Callable[[int], None]] = {"pfl-research": Pfl(random=random).play}
    players |= {name: partial(steps, simulation) for name, simulation in simulations.items()}
    for play in players.values():
        play(3)
    found: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(repeats):
        for name, play in players.items():
            found[name].append(seconds(partial(play, rounds)) / rounds)
    captured = {name: simulation.is_captured for name, simulation in simulations.items()}
    oracles = {name: type(simulation.engine.gradients).__name__ for name, simulation in simulations.items()}
    print(f"  captured: {captured}; oracles: {oracles}")
    return {"captured": captured, "oracles": oracles, **table(found, "pfl-research")}


def whole(seeds: int, rounds: int, only: str) -> list[dict[str, Any]]:
    """All rounds, tested every ten, for some seeds: seconds and the last accuracy."""
    found = []
    for seed in range(seeds):
        if only in ("", "pfl-research"):
            took, accuracy = whole_pfl(seed, rounds)
            found.append({"contender": "pfl-research", "seed": seed, "seconds": took, "accuracy": accuracy})
            print(f"  {found[-1]}", flush=True)
        task = problem(seed).to(DEVICE)
        for name, options in OURS.items():
            if only not in ("", name):
                continue
            settings = {"rounds": rounds, "eval_every": EVERY, "eval_clients": 2, "seed": seed}
            began = time.perf_counter()
            history = run(task, method(task), **settings, **OPTIONS, **options)
            took = time.perf_counter() - began
            found.append({"contender": name, "seed": seed, "seconds": took, "accuracy": history["accuracy"][-1]})
            print(f"  {found[-1]}", flush=True)
    return found


def whole_pfl(seed: int, rounds: int) -> tuple[float, float]:
    """Seconds and the last accuracy of pfl-research."""
    peer = Pfl(seed)

    def look(round_: int) -> None:
        if (round_ + 1) % EVERY == 0:
            peer.accuracy()

    return seconds(partial(peer.play, rounds, look)), peer.accuracy()


def main() -> None:
    """Measure what was asked for, and write it down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, help="of one measurement (20), or of a whole run (1,500)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--random", action="store_true", help="noise in place of CIFAR-10, for times alone")
    parser.add_argument("--whole", action="store_true", help="whole runs: their seconds and accuracies")
    parser.add_argument("--seeds", type=int, default=3, help="of whole runs")
    parser.add_argument("--only", default="", help="one contender of whole runs, by its name")
    parser.add_argument("--out", type=Path, help="where to keep the result; by default benchmarks/results")
    chosen = parser.parse_args()
    about = f"FedAvg, pfl-research's CIFAR-10 network with dropout, {COHORT} of {USERS} users a round, batch {BATCH}"
    print(f"{about}; {machine()}")
    if chosen.whole:
        result: dict[str, Any] = {"runs": whole(chosen.seeds, chosen.rounds or ROUNDS, chosen.only)}
    else:
        result = per_round(chosen.rounds or 20, chosen.repeats, chosen.random)
    write(
        "pfl_cifar10_whole" if chosen.whole else "pfl_cifar10",
        {"task": about, "machine": machine(), **result},
        chosen.out,
    )


if __name__ == "__main__":
    main()
