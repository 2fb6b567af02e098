"""What workers with optimisers of their own lose against one optimiser for all, and what could win it back.

    python benchmarks/language_trials.py                                        the trials, by name
    python benchmarks/language_trials.py "Muon, 8 steps" "Muon, 15 steps, 2 bits"
    python benchmarks/language_trials.py --batch 64 "Muon, 15 steps, 2 bits"    4,096 tokens for a step and not 512

The problem is that of the experiment `language_small`, and optimisers and compressors are the package's, but the rounds
are written out here, because most of what is tried is no method of the package.  Workers take `steps` local steps and
tell how far they came, what is lost in coding is kept for the next message, and the server answers likewise (FedCEF
with control = "change").  A trial takes one to seven minutes on one core.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from fedcef.compressors import Compressor, Eden, TopK
from fedcef.core.rng import Key
from fedcef.optimizers import AdamW, LocalUpdate, Muon
from fedcef.optimizers.muon import orthogonal
from fedcef.optimizers.tuned import TunedUpdate
from fedcef.problems.text import next_token_loss
from fedcef.runs.experiments import load_settings

CLIP = 1.0
State = dict[str, Tensor]


@dataclass(frozen=True)
class Trial:
    """How workers step, and what they and the server tell each other."""

    update: Literal["adamw", "muon"] = "muon"
    lr: float = 2e-2
    steps: int = 15
    """Local steps in a round; 0 is data parallelism: one optimiser, fed with the mean gradient."""
    up: Compressor | None = None
    down: Compressor | None = None
    server_lr: float = 1.0
    server_momentum: float = 0.0
    """Nesterov's, on the mean change."""
    memory: Literal["own", "mean", "all_mean", "zero", "told", "moved"] = "own"
    """What workers' momenta become after a round: stay, their mean for nothing (of everything with `all_mean`), zero,
    nearer to their mean by coded differences (`Told`), or as long as before along the mean change."""
    lengths: Literal["steps", "distance"] = "steps"
    """Whether rounds have equally many steps, or equal sums of step sizes."""
    orthogonal: float = 0.0
    """How much of the mean change of a matrix is made orthogonal, as long as it was."""
    alike: bool = False
    """Whether every batch is from any worker's text."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the update."""


ONE, TWO, FOUR = Eden(bits=1), Eden(bits=2), Eden(bits=4)
TOLD = TopK(ratio=0.05, values="sign")
BASE = Trial(up=TWO, down=TWO)
EIGHT = Trial(steps=8)
TRIALS = {
    "data parallel, AdamW, 5e-3": Trial("adamw", 5e-3, 0),
    "data parallel, AdamW, 8e-3": Trial("adamw", 8e-3, 0),
    "data parallel, Muon, 1e-2": Trial(lr=1e-2, steps=0),
    "data parallel, Muon, 2e-2": Trial(steps=0),
    "AdamW, 1 step": Trial("adamw", 1e-2, 1),
    "AdamW, 1 step, alike": Trial("adamw", 1e-2, 1, alike=True),
    "Muon, 1 step": Trial(steps=1),
    "Muon, 1 step, alike": Trial(steps=1, alike=True),
    "Muon, 8 steps": EIGHT,
    "Muon, 8 steps, alike": replace(EIGHT, alike=True),
    "Muon, 8 steps, 4e-2": replace(EIGHT, lr=4e-2),
    "Muon, 8 steps, mean momenta": replace(EIGHT, memory="mean"),
    "Muon, 8 steps, mean memories": replace(EIGHT, memory="all_mean"),
    "Muon, 8 steps, momenta from zero": replace(EIGHT, memory="zero"),
    "Muon, 8 steps, momenta along the mean change": replace(EIGHT, memory="moved"),
    "Muon, 8 steps, momenta told by 5% signs": replace(EIGHT, memory="told"),
    "Muon, 8 steps, 1 bit up": replace(EIGHT, up=ONE),
    "Muon, 8 steps, 2 bits down": replace(EIGHT, down=TWO),
    "Muon, 8 steps, 1 bit, mean momenta": replace(EIGHT, up=ONE, down=ONE, memory="mean"),
    "Muon, 10 steps, 1 bit up, 2 down, 1.4e-2": Trial(lr=1.4e-2, steps=10, up=ONE, down=TWO),
    "Muon, 15 steps, mean memories": Trial(memory="all_mean"),
    "Muon, 30 steps": Trial(steps=30),
    "Muon, 30 steps, mean memories": Trial(steps=30, memory="all_mean"),
    "Muon, 30 steps, 4 bits": Trial(steps=30, up=FOUR, down=FOUR),
    "Muon, 30 steps, 4 bits, 4e-2": Trial(lr=4e-2, steps=30, up=FOUR, down=FOUR),
    "Muon, 15 steps, 2 bits": BASE,
    "Muon, 15 steps, 2 bits, 1e-2": replace(BASE, lr=1e-2),
    "Muon, 15 steps, 2 bits, server_lr 1.4": replace(BASE, server_lr=1.4),
    "Muon, 15 steps, 2 bits, server_lr 1.5": replace(BASE, server_lr=1.5),
    "Muon, 15 steps, 2 bits, server_lr 1.8": replace(BASE, server_lr=1.8),
    "Muon, 15 steps, 2 bits, 1.4e-2, server_lr 1.8": replace(BASE, lr=1.4e-2, server_lr=1.8),
    "Muon, 15 steps, 2 bits, server momentum": replace(BASE, server_lr=0.7, server_momentum=0.5),
    "Muon, 15 steps, 2 bits, rounds by distance": replace(BASE, lengths="distance"),
    "Muon, 15 steps, 2 bits, orthogonal": replace(BASE, orthogonal=1.0),
    "Muon, 15 steps, 2 bits, half orthogonal": replace(BASE, orthogonal=0.5),
    "Muon, 15 steps, 2 bits, momentum 0.9": replace(BASE, options={"momentum": 0.9}),
    "Muon, 15 steps, 2 bits, momentum 0.98": replace(BASE, options={"momentum": 0.98}),
    "Muon, 15 steps, 2 bits, embedding 0.4": replace(BASE, options={"lr_factors": {"*embedding*": 0.4}}),
    "Muon, 15 steps, 1 bit up, 2 down, mean momenta": replace(BASE, up=ONE, memory="mean"),
}


class Workers:
    """The workers' texts, with a stream of batches, and the test set."""

    def __init__(self, seed: int, batch: int, changes: list[str]) -> None:
        settings = load_settings("language_small", [f"seed={seed}", *changes])
        problem = settings.build_problem()
        assert problem.test is not None
        self.start, self.layout = problem.z0, problem.layout
        self._model, self._data, self._test, self._batch = problem.model, problem.data, problem.test, batch
        self._generator = torch.Generator().manual_seed(seed)
        self.count = problem.num_clients

    def gradient(self, worker: int, x: Tensor) -> Tensor:
        """That of the next batch, clipped."""
        data: Any = self._data
        windows = int(data.lengths[worker]) - data.context
        places = data.starts[worker] + torch.randint(0, windows, (self._batch,), generator=self._generator)
        samples, x = data.gather(places), x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self._loss(x, samples.inputs, samples.targets), x)
        norm = gradient.norm()
        return gradient * (CLIP / norm) if norm > CLIP else gradient

    @torch.no_grad()
    def test_loss(self, x: Tensor) -> float:
        """The mean over the test set."""
        pieces = list(zip(self._test.inputs.split(256), self._test.targets.split(256), strict=True))
        return sum(float(self._loss(x, *piece)) * len(piece[0]) for piece in pieces) / len(self._test.inputs)

    def _loss(self, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return next_token_loss(functional_call(self._model, self.layout.unflatten(x), (inputs,)), targets)


class Channel:
    """One direction's messages: coded if there is a compressor, and counted."""

    def __init__(self, compressor: Compressor | None) -> None:
        self._compressor, self._sent = compressor, 0

    def __call__(self, x: Tensor) -> tuple[Tensor, float]:
        """What arrives, and its bits."""
        if self._compressor is None:
            return x.clone(), 32.0 * x.numel()
        self._sent += 1
        key = torch.tensor(self._sent * 7919 + 13)
        payload = self._compressor.compress(x, Key(key, key))
        return payload.dense(), 8.0 * int(payload.nbytes())


class Told:
    """Momenta brought nearer to their mean by control variates of what was told: m_i ← m_i + c - c_i."""

    def __init__(self, like: Tensor, count: int) -> None:
        self._own = [torch.zeros_like(like) for _ in range(count)]
        self._mean, self._known = torch.zeros_like(like), torch.zeros_like(like)
        self._up, self._down = Channel(TOLD), Channel(TOLD)

    def share(self, states: list[State]) -> float:
        """Change the momenta; returns the bits up and down."""
        bits, mean = 0.0, torch.zeros_like(self._mean)
        for i, state in enumerate(states):
            told, sent = self._up(state["m"] - self._own[i])
            self._own[i] = self._own[i] + told
            mean, bits = mean + told / len(states), bits + sent / len(states)
        self._mean = self._mean + mean
        told, sent = self._down(self._mean - self._known)
        self._known = self._known + told
        for state, own in zip(states, self._own, strict=True):
            state["m"] = state["m"] + self._known - own
        return bits + sent


def play(trial: Trial, workers: Workers, steps: int) -> tuple[float, float]:
    """The test loss after so many steps, and the bits for each parameter and step, up and down together."""
    update = optimizer(trial, workers, steps)
    if not trial.steps:
        return one_for_all(trial, update, workers, steps), 64.0
    x, count = workers.start.clone(), workers.count
    states, kept, rest = [update.init(x) for _ in range(count)], [torch.zeros_like(x) for _ in range(count)], 0 * x
    up, down, velocity, bits = Channel(trial.up), Channel(trial.down), torch.zeros_like(x), 0.0
    anyone = torch.Generator().manual_seed(5)
    told = Told(states[0]["m"], count) if trial.memory == "told" else None
    rounds = steps // trial.steps
    for first, last in rounds_of(trial, update, rounds):
        mean = torch.zeros_like(x)
        for i in range(count):
            y = x.clone()
            for step in range(first, last):
                source = int(torch.randint(0, count, (1,), generator=anyone)) if trial.alike else i
                gradient = workers.gradient(source, y)
                direction, states[i] = update.after(torch.tensor(step)).update(gradient, states[i], y, 0)
                y = y - trial.lr * direction
            change = kept[i] + (x - y)
            arrived, sent = up(change)
            kept[i] = change - arrived
            mean, bits = mean + arrived / count, bits + sent / count
        bits += told.share(states) if told else 0.0
        change = rest + mean
        arrived, sent = down(change)
        rest, bits = change - arrived, bits + sent
        share_memory(trial, states)
        if trial.server_momentum:
            velocity = trial.server_momentum * velocity + arrived
            arrived = arrived + trial.server_momentum * velocity
        if isinstance(update, Muon):
            turn(trial, update, arrived)
        x = x - trial.server_lr * arrived
        if trial.memory == "moved" and isinstance(update, Muon):
            along(update, states, arrived)
    return workers.test_loss(x), bits / (rounds * trial.steps * len(x))


def optimizer(trial: Trial, workers: Workers, steps: int) -> LocalUpdate:
    """The update, with the warm-up and cosine of the experiment."""
    tuned: dict[str, Any] = {"weight_decay": 0.1, "no_decay": ["*norm*"], "warmup": max(1, steps // 6)}
    tuned |= {"schedule": "cosine", "final": 0.0, "memory": "client", **trial.options}
    update = AdamW(decay=0.95, **tuned) if trial.update == "adamw" else Muon(**tuned)
    return update.fit(workers.layout).for_steps(steps)


def one_for_all(trial: Trial, update: LocalUpdate, workers: Workers, steps: int) -> float:
    """Data parallelism."""
    x, state = workers.start.clone(), update.init(workers.start)
    for step in range(steps):
        gradient = sum(workers.gradient(i, x) for i in range(workers.count)) / workers.count
        assert isinstance(gradient, Tensor)
        direction, state = update.after(torch.tensor(step)).update(gradient, state, x, 0)
        x = x - trial.lr * direction
    return workers.test_loss(x)


def rounds_of(trial: Trial, update: LocalUpdate, rounds: int) -> list[tuple[int, int]]:
    """The first step of each round and that after its last."""
    ends = [trial.steps * number for number in range(rounds + 1)]
    if trial.lengths == "distance":
        assert isinstance(update, TunedUpdate)
        factors = torch.tensor([float(update.after(torch.tensor(n)).factor(0)) for n in range(ends[-1])]).double()
        goals = factors.sum() * torch.arange(1, rounds, dtype=torch.float64) / rounds
        ends[1:-1] = (torch.searchsorted(factors.cumsum(0), goals - 1e-9) + 1).tolist()
    return list(pairwise(ends))


def share_memory(trial: Trial, states: list[State]) -> None:
    """What becomes of memories that cost no message here."""
    names = {"mean": ["m"], "all_mean": list(states[0]), "zero": ["m"]}
    for name in names.get(trial.memory, []):
        mean = sum(state[name] for state in states) / len(states)
        assert isinstance(mean, Tensor)
        for state in states:
            state[name] = torch.zeros_like(mean) if trial.memory == "zero" else mean.clone()


def turn(trial: Trial, update: Muon, change: Tensor) -> None:
    """In place: matrices of the mean change, some of them orthogonal."""
    for stretch, shape in update._matrices if trial.orthogonal else []:
        matrix = change[stretch].view(shape)
        turned = orthogonal(matrix, 5)
        turned = turned * (matrix.norm() / turned.norm())
        change[stretch] = ((1 - trial.orthogonal) * matrix + trial.orthogonal * turned).flatten()


def along(update: Muon, states: list[State], change: Tensor) -> None:
    """Momenta as long as before, along the mean change."""
    begin = 0
    for stretch, _ in update._matrices:
        end, moved = begin + stretch.stop - stretch.start, change[stretch]
        for state in states:
            state["m"][begin:end] = moved * (state["m"][begin:end].norm() / (moved.norm() + 1e-12))
        begin = end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="TRIAL")
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--batch", type=int, default=8, help="windows of 64 bytes for each worker and step (8)")
    parser.add_argument("--set", action="append", default=[], help="a setting of the experiment, KEY=VALUE")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in TRIALS]:
        parser.error(f"there is no {unknown[0]!r}; without names the trials are listed.")
    if not options.names:
        print(*TRIALS, sep="\n")
    torch.set_num_threads(1)
    for name in options.names:
        began = time.perf_counter()
        loss, bits = play(TRIALS[name], Workers(options.seed, options.batch, options.set), options.steps)
        took = time.perf_counter() - began
        print(f"{name}: test loss {loss:.4f}, {64 / bits:.0f} times fewer bits, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
