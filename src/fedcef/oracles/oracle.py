"""Gradient oracles: the minibatch gradients of all clients behind one signature.

Three ways to compute the same thing.  `ClientLoop` goes through the clients; on a CPU it gives each core a
client and each client one thread, which keeps results independent of the number of cores, on a GPU it gives them
streams.  `Stacked` evaluates all clients at once by vmap, which pays where a client's step is small (linear models,
MLPs) and costs where it turns convolutions into grouped ones.  `Batched` evaluates all clients' convolutional
networks at once with kernels written for that, on a GPU.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fedcef import kernels
from fedcef.algorithms.algorithm import Oracle
from fedcef.core import rng
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.precision import Precision
from fedcef.core.rng import Key
from fedcef.core.threads import cores, single_thread
from fedcef.problems.problem import Problem, Samples

if TYPE_CHECKING:
    from fedcef.kernels.cnn import BatchedNetwork

_STREAMS = 8  # clients that a GPU works on at a time; more gave nothing


@dataclass(frozen=True)
class Batches:
    """Which samples the gradients are taken on: `size` of a client's own, drawn with replacement; 0 = all."""

    size: int = 64

    def rows(self, problem: Problem, clients: Tensor, key: Key, steps: int) -> Tensor:
        """Rows of the table of samples for every step of a round: (clients, steps, size)."""
        keys = rng.fold(key.own, rng.BATCHES)
        drawn = rng.integers(keys, steps * self.size, problem.sizes[clients])
        return (problem.starts[clients].unsqueeze(-1) + drawn).view(len(clients), steps, self.size)

    def of_round(self, problem: Problem, clients: Tensor, key: Key, steps: int) -> Callable[[int], Samples | None]:
        """take(k): the clients' k-th minibatches, (clients, size, ...); None stands for all that each of them has."""
        if not self.size:
            return lambda k: None
        rows = self.rows(problem, clients, key, steps)
        changes = None
        if problem.augment is not None:
            keys = rng.fold(key.own, rng.AUGMENT)
            changes = problem.augment.draw(keys, steps * self.size).view(rows.shape)

        def take(k: int) -> Samples:
            inputs, targets = problem.train.inputs[rows[:, k]], problem.train.targets[rows[:, k]]
            if problem.augment is not None and changes is not None:
                images = problem.augment.apply(inputs.flatten(0, 1), changes[:, k].flatten())
                inputs = images.reshape(len(clients), self.size, *images.shape[1:])
            return Samples(inputs, targets)

        return take


class GradientOracle(ABC):
    """Makes the oracle of each round."""

    captures = True
    """Whether gradients leave the host alone, so that a CUDA graph can hold them."""

    def __init__(
        self, problem: Problem, batches: Batches, clip_norm: float | None, precision: Precision = "float32"
    ) -> None:
        if problem.augment is not None and not batches.size:
            raise ConfigError(
                "Images are changed at random as minibatches are drawn; with batch_size = 0 take augment = 'none'."
            )
        self.problem = problem
        self.batches = batches
        self.clip_norm = clip_norm
        self.precision = precision

    def for_round(self, clients: Tensor, key: Key, steps: int) -> Oracle:
        """The oracle of the given clients for one round of `steps` local steps."""
        take = self.batches.of_round(self.problem, clients, key, steps)

        def oracle(x: Tensor, k: int) -> Tensor:
            return self.gradients(x.expand(len(clients), -1), clients, take(k), key, k)

        return oracle

    @abstractmethod
    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, key: Key, k: int) -> Tensor:
        """Every client's clipped gradient at its own row of x, on its own part of the batch or on all that it has."""

    def loss(self, model: nn.Module, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """One client's loss at x, (p,), computed in the precision that was chosen."""
        cheaper = torch.autocast(x.device.type, torch.bfloat16) if self.precision == "bfloat16" else nullcontext()
        with cheaper:
            return self.problem.loss(self.problem.outputs(model, x, inputs), targets)

    def clipped(self, g: Tensor) -> Tensor:
        return g if self.clip_norm is None else clip(g, self.clip_norm)


class Stacked(GradientOracle):
    """All clients in one evaluation."""

    def __init__(
        self, problem: Problem, batches: Batches, clip_norm: float | None, precision: Precision = "float32"
    ) -> None:
        super().__init__(problem, batches, clip_norm, precision)
        model = deepcopy(problem.model).train()

        def loss(x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
            return self.loss(model, x, inputs, targets)

        self._gradients: Callable[..., Tensor] = torch.func.vmap(torch.func.grad(loss))

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, key: Key, k: int) -> Tensor:
        if batch is None:  # clients are of equal size: the table of samples is theirs one after the other
            train = self.problem.train
            inputs, targets = (
                t.view(self.problem.num_clients, -1, *t.shape[1:]) for t in (train.inputs, train.targets)
            )
            if len(clients) < self.problem.num_clients:
                inputs, targets = inputs[clients], targets[clients]
        else:
            inputs, targets = batch.inputs, batch.targets
        try:
            return self.clipped(self._gradients(x, inputs, targets))
        except RuntimeError as error:
            if "randomness" not in str(error):
                raise
            raise ProblemError(
                "The model draws random numbers as it runs; write them as nn.Dropout modules, which are drawn "
                "reproducibly, or take oracle = 'loop'."
            ) from error


class ClientLoop(GradientOracle):
    """One client after the other; on a CPU, as many at a time as there are cores, on a GPU as there are streams."""

    def __init__(
        self,
        problem: Problem,
        batches: Batches,
        clip_norm: float | None,
        precision: Precision = "float32",
        workers: int | None = None,
    ) -> None:
        super().__init__(problem, batches, clip_norm, precision)
        self._draws = has_dropout(problem.model)
        self.captures = batches.size > 0 and not self._draws  # otherwise sizes or seeds are read on the host
        if workers is None:
            workers = 1 if self._draws or problem.z0.is_cuda else cores()
        self._pool = (
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) if workers > 1 else None
        )
        streams = _STREAMS if problem.z0.is_cuda else 0
        self._streams = [torch.cuda.Stream() for _ in range(streams)]  # type: ignore[no-untyped-call]
        self._thread = threading.local()

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, key: Key, k: int) -> Tensor:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)

        def one(n: int) -> None:
            if batch is None:
                mine = self.problem.client_samples(int(clients[n]))
            else:
                mine = Samples(batch.inputs[n], batch.targets[n])
            devices = [x.device] if x.is_cuda else []
            with torch.random.fork_rng(devices=devices, enabled=self._draws):
                if self._draws:  # dropout draws from torch's own generator: give it this step's key
                    torch.manual_seed(int(rng.fold(rng.fold(key.own[n], rng.DROPOUT), k)))
                out[n] = self._gradient(x[n], mine.inputs, mine.targets)

        self._for_each(one, range(len(clients)))
        return self.clipped(out)

    def _for_each(self, one: Callable[[int], None], numbers: Iterable[int]) -> None:
        if self._streams:
            main = torch.cuda.current_stream()
            for stream in self._streams:
                stream.wait_stream(main)
            for n in numbers:
                with torch.cuda.stream(self._streams[n % len(self._streams)]):
                    one(n)
            for stream in self._streams:
                main.wait_stream(stream)
        elif self._pool is None:
            with single_thread():
                for n in numbers:
                    one(n)
        else:
            list(self._pool.map(one, numbers))

    def _gradient(self, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        if inputs.ndim == 4:  # images: convolutions are faster with channels last, and pass that order on
            inputs = inputs.to(memory_format=torch.channels_last)
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            loss = self.loss(self._model(), x, inputs, targets)
        return torch.autograd.grad(loss, x)[0]

    def _model(self) -> nn.Module:
        """This thread's own copy of the module: functional_call swaps its parameters while it runs."""
        if not hasattr(self._thread, "model"):
            self._thread.model = deepcopy(self.problem.model).train()
        model: nn.Module = self._thread.model
        return model


class Batched(GradientOracle):
    """All clients' convolutional networks in one pass of kernels that know the clients' axis; see `fedcef.kernels`."""

    def __init__(
        self, problem: Problem, batches: Batches, clip_norm: float | None, precision: Precision = "bfloat16"
    ) -> None:
        super().__init__(problem, batches, clip_norm, precision)
        network = batched_network(problem)
        if network is None or not batches.size or precision != "bfloat16":
            raise ConfigError(
                "oracle = 'batched' needs Triton on a GPU, minibatches, precision = 'bfloat16', and a chain of 3x3 "
                "convolutions, ReLU, 2x2 max-pooling and linear layers; use oracle = 'loop'."
            )
        self._network = network

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, key: Key, k: int) -> Tensor:
        assert batch is not None
        return self._network.gradients(
            x, batch.inputs, batch.targets, self.problem.loss, torch.bfloat16, self.clip_norm
        )


def batched_network(problem: Problem) -> BatchedNetwork | None:
    """The problem's network as kernels over all clients, where there are such kernels for it."""
    if not (problem.z0.is_cuda and kernels.available()):
        return None
    from fedcef.kernels.cnn import BatchedNetwork

    return BatchedNetwork.of(problem.model, problem.layout, tuple(problem.train.inputs.shape[1:]))


def make_oracle(
    problem: Problem, kind: str, batches: Batches, clip_norm: float | None, precision: Precision = "float32"
) -> GradientOracle:
    """The oracle named "loop", "stacked" or "batched", or for "auto" the fastest for this kind of model and device.

    The choice never depends on a measurement: a run must not change from one start to the next.
    """
    unequal = batches.size == 0 and int(problem.sizes.min()) != int(problem.sizes.max())
    convolves = any(isinstance(m, nn.modules.conv._ConvNd) for m in problem.model.modules())
    if kind == "auto":
        kind = "loop" if convolves or unequal or has_dropout(problem.model) else "stacked"
        if convolves and batches.size and precision == "bfloat16" and batched_network(problem) is not None:
            kind = "batched"
    if kind == "stacked" and unequal:
        raise ConfigError("oracle = 'stacked' with batch_size = 0 needs clients of equal size; use oracle = 'loop'.")
    if kind == "stacked" and has_dropout(problem.model):
        raise ConfigError("oracle = 'stacked' cannot draw dropout masks reproducibly; use oracle = 'loop'.")
    kinds: dict[str, type[GradientOracle]] = {"loop": ClientLoop, "stacked": Stacked, "batched": Batched}
    return kinds[kind](problem, batches, clip_norm, precision)


def clip(g: Tensor, norm: float) -> Tensor:
    """Each gradient scaled down to at most the given norm."""
    return g * torch.clamp(norm / torch.linalg.vector_norm(g, dim=-1, keepdim=True), max=1.0)


def has_dropout(model: nn.Module) -> bool:
    return any(isinstance(m, nn.modules.dropout._DropoutNd) for m in model.modules())
