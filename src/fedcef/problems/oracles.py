"""Gradient oracles: the minibatch gradients of all clients behind one signature.

Two ways to compute the same thing.  `ClientLoop` goes through the clients; on a CPU it gives each core a
client and each client one thread, which keeps results independent of the number of cores.  `Stacked` evaluates
all clients at once by vmap, which pays where a client's step is small (linear models, MLPs) and costs where it
turns convolutions into grouped ones.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedcef import rng
from fedcef.algorithm import Oracle
from fedcef.errors import ConfigError, ProblemError
from fedcef.problems.problem import Problem
from fedcef.rng import Key
from fedcef.threads import cores, single_thread


@dataclass(frozen=True)
class Batches:
    """Which samples the gradients are taken on: `size` of a client's own, drawn with replacement; 0 = all."""

    size: int = 64

    def rows(self, problem: Problem, clients: Tensor, key: Key, steps: int) -> Tensor:
        """Rows of the table of samples for every step of a round: (clients, steps, size)."""
        keys = rng.fold(key.own, rng.BATCHES)
        drawn = rng.integers(keys, steps * self.size, problem.sizes[clients])
        return (problem.starts[clients].unsqueeze(-1) + drawn).view(len(clients), steps, self.size)


class GradientOracle(ABC):
    """Makes the oracle of each round."""

    def __init__(self, problem: Problem, batches: Batches, clip_norm: float | None) -> None:
        self.problem = problem
        self.batches = batches
        self.clip_norm = clip_norm

    def for_round(self, clients: Tensor, key: Key, steps: int) -> Oracle:
        """The oracle of the given clients for one round of `steps` local steps."""
        rows = self.batches.rows(self.problem, clients, key, steps) if self.batches.size else None

        def oracle(x: Tensor, k: int) -> Tensor:
            x = x.expand(len(clients), -1)
            g = self.gradients(x, clients, None if rows is None else rows[:, k], key, k)
            return g if self.clip_norm is None else clip(g, self.clip_norm)

        return oracle

    @abstractmethod
    def gradients(self, x: Tensor, clients: Tensor, rows: Tensor | None, key: Key, k: int) -> Tensor:
        """Every client's gradient at its own row of x, on the given rows of samples or on all that it has."""


class Stacked(GradientOracle):
    """All clients in one evaluation."""

    def __init__(self, problem: Problem, batches: Batches, clip_norm: float | None) -> None:
        super().__init__(problem, batches, clip_norm)
        model = deepcopy(problem.model).train()

        def loss(x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
            return problem.loss(problem.outputs(model, x, inputs), targets)

        self._gradients: Callable[..., Tensor] = torch.func.vmap(torch.func.grad(loss))

    def gradients(self, x: Tensor, clients: Tensor, rows: Tensor | None, key: Key, k: int) -> Tensor:
        train = self.problem.train
        if rows is None:  # clients are of equal size: the table of samples is theirs one after the other
            inputs, targets = (
                t.view(self.problem.num_clients, -1, *t.shape[1:]) for t in (train.inputs, train.targets)
            )
            if len(clients) < self.problem.num_clients:
                inputs, targets = inputs[clients], targets[clients]
        else:
            inputs, targets = train.inputs[rows], train.targets[rows]
        try:
            return self._gradients(x, inputs, targets)
        except RuntimeError as error:
            if "randomness" not in str(error):
                raise
            raise ProblemError(
                "The model draws random numbers as it runs; write them as nn.Dropout modules, which are drawn "
                "reproducibly, or take oracle = 'loop'."
            ) from error


class ClientLoop(GradientOracle):
    """One client after the other; on a CPU, as many at a time as there are cores."""

    def __init__(self, problem: Problem, batches: Batches, clip_norm: float | None, workers: int | None = None) -> None:
        super().__init__(problem, batches, clip_norm)
        self._draws = has_dropout(problem.model)
        if workers is None:
            workers = 1 if self._draws or problem.z0.is_cuda else cores()
        self._pool = (
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) if workers > 1 else None
        )
        self._thread = threading.local()

    def gradients(self, x: Tensor, clients: Tensor, rows: Tensor | None, key: Key, k: int) -> Tensor:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)

        def one(n: int) -> None:
            if rows is None:
                batch = self.problem.client_samples(int(clients[n]))
                inputs, targets = batch.inputs, batch.targets
            else:
                inputs, targets = self.problem.train.inputs[rows[n]], self.problem.train.targets[rows[n]]
            with torch.random.fork_rng(devices=[], enabled=self._draws):
                if self._draws:  # dropout draws from torch's own generator: give it this step's key
                    torch.manual_seed(int(rng.fold(rng.fold(key.own[n], rng.DROPOUT), k)))
                out[n] = self._gradient(x[n], inputs, targets)

        if self._pool is None:
            with single_thread():
                for n in range(len(clients)):
                    one(n)
        else:
            list(self._pool.map(one, range(len(clients))))
        return out

    def _gradient(self, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        if inputs.ndim == 4:  # images: convolutions are faster with channels last, and pass that order on
            inputs = inputs.to(memory_format=torch.channels_last)
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            loss = self.problem.loss(self.problem.outputs(self._model(), x, inputs), targets)
        return torch.autograd.grad(loss, x)[0]

    def _model(self) -> nn.Module:
        """This thread's own copy of the module: functional_call swaps its parameters while it runs."""
        if not hasattr(self._thread, "model"):
            self._thread.model = deepcopy(self.problem.model).train()
        model: nn.Module = self._thread.model
        return model


def make_oracle(problem: Problem, kind: str, batches: Batches, clip_norm: float | None) -> GradientOracle:
    """The oracle named "loop" or "stacked", or for "auto" the one that is faster for this kind of model.

    The choice depends on the model alone, never on a measurement: a run must not change from one start to the next.
    """
    unequal = batches.size == 0 and int(problem.sizes.min()) != int(problem.sizes.max())
    if kind == "auto":
        convolves = any(isinstance(m, nn.modules.conv._ConvNd) for m in problem.model.modules())
        kind = "loop" if convolves or unequal or has_dropout(problem.model) else "stacked"
    if kind == "stacked" and unequal:
        raise ConfigError("oracle = 'stacked' with batch_size = 0 needs clients of equal size; use oracle = 'loop'.")
    if kind == "stacked" and has_dropout(problem.model):
        raise ConfigError("oracle = 'stacked' cannot draw dropout masks reproducibly; use oracle = 'loop'.")
    return Stacked(problem, batches, clip_norm) if kind == "stacked" else ClientLoop(problem, batches, clip_norm)


def clip(g: Tensor, norm: float) -> Tensor:
    """Each gradient scaled down to at most the given norm."""
    return g * torch.clamp(norm / torch.linalg.vector_norm(g, dim=-1, keepdim=True), max=1.0)


def has_dropout(model: nn.Module) -> bool:
    return any(isinstance(m, nn.modules.dropout._DropoutNd) for m in model.modules())
