"""One client after the other.

On a CPU each core gets a client and each client one thread, which keeps results independent of the number of cores; on
a GPU clients get streams.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor, nn

from fedcef.core.round import Round
from fedcef.core.threads import cores, single_thread
from fedcef.core.training import Training
from fedcef.oracles.dropout import Copy, draws_itself, draws_unseen, has_dropout
from fedcef.oracles.gradient_oracle import GradientOracle
from fedcef.oracles.large_models import compile_blocks
from fedcef.problems.client_data import Samples
from fedcef.problems.lending import lend
from fedcef.problems.pieces import scaled, share
from fedcef.problems.problem import Problem

_STREAMS = 8  # clients that a GPU works on at a time; more gave nothing
_LARGE = 1 << 25  # parameters of a model whose gradient keeps a GPU busy, and of whose activations one set is enough


class ClientLoop(GradientOracle):
    """One client after the other; on a CPU, as many at a time as there are cores, on a GPU as there are streams."""

    def __init__(self, problem: Problem, training: Training, workers: int | None = None) -> None:
        super().__init__(problem, training)
        self._seeds = draws_itself(problem.model) or draws_unseen(problem)
        self._draws = self._seeds or has_dropout(problem.model)
        everyone = training.clients_per_round in (0, problem.num_clients) and not training.cohort_chunk
        # otherwise seeds are read on the host, or the sizes of whoever takes part
        self.captures = self.captures and not self._seeds and (self.batch_size > 0 or everyone)
        self._micro_batch, self._compiles = training.micro_batch, training.compile
        self._device = problem.z0.device
        if workers is None:
            one = self._seeds or self._compiles or self._device.type == "cuda"
            workers = 1 if one else min(cores(), problem.num_clients)
        self._pool = (
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) if workers > 1 else None
        )
        streams = (1 if problem.dim > _LARGE else _STREAMS) if self._device.type == "cuda" else 0
        self._streams = [torch.cuda.Stream(self._device) for _ in range(streams)]  # type: ignore[no-untyped-call]
        self._thread = threading.local()

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int) -> Tensor:
        """Every client's clipped gradient, each computed by itself."""
        return self._computed(x, clients, batch, round_, k, None)

    def moving(
        self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int, statistics: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same with running statistics, each client's on its own."""
        moved = statistics.clone(memory_format=torch.contiguous_format)
        return self._computed(x, clients, batch, round_, k, moved), moved

    def _computed(
        self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int, statistics: Tensor | None
    ) -> Tensor:
        """The gradients; statistics, if there are any, are moved on in place."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        keys = round_.dropout(k).view(-1) if self._draws else None
        everyone = len(clients) == self.problem.num_clients  # then nobody's number needs to be read

        def one(n: int) -> None:
            if batch is None:
                mine = self.problem.data.samples(n if everyone else int(clients[n]))
            else:
                mine = Samples(batch.inputs[n], batch.targets[n])
            key = None if keys is None else keys[n]
            if statistics is None:
                self._write(out[n], x[n], mine, key)
            else:
                out[n] = self._gradient(x[n], mine, key, statistics[n])

        self._for_each(one, range(len(clients)))
        return self.clipped(out)

    def _for_each(self, one: Callable[[int], None], numbers: Iterable[int]) -> None:
        if self._streams:
            main = torch.cuda.current_stream(self._device)
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

    def _write(self, out: Tensor, x: Tensor, samples: Samples, key: Tensor | None) -> None:
        """One client's gradient at x, (p,), where it belongs."""
        out.copy_(self._gradient(x, samples, key))

    def _gradient(self, x: Tensor, samples: Samples, key: Tensor | None, statistics: Tensor | None = None) -> Tensor:
        """One client's gradient; its statistics, (q,), are moved on in place."""
        inputs, copy = samples.inputs, self._copy()
        if inputs.ndim == 4:  # images: convolutions are faster with channels last, and pass that order on
            inputs = inputs.to(memory_format=torch.channels_last)
        x = x.detach().requires_grad_()
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else [], enabled=self._seeds), torch.enable_grad():
            if key is not None:
                copy.masks.start(key)
                if self._seeds:  # some layer draws from torch's own generator: give it this step's key
                    torch.manual_seed(int(key))
            lent = self.problem.layout.unflatten(x.to(self.parameter_type))
            work = partial(self._in_parts, copy.model, x, inputs, samples.targets)
            if statistics is not None:
                lent |= self.problem.statistics.tensors(copy.model, statistics)
                work = partial(self._moving, copy.model, x, inputs, samples.targets, statistics)
            return lend(copy.model, lent, work)  # on the way back, too

    def _moving(self, model: nn.Module, x: Tensor, inputs: Tensor, targets: Tensor, statistics: Tensor) -> Tensor:
        """The gradient of the mean loss; statistics, (q,), are moved on in place."""
        loss, moved = self.moving_loss(model, x, inputs, targets, statistics)
        statistics.copy_(moved)
        return torch.autograd.grad(loss, x)[0]

    def _in_parts(self, model: nn.Module, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient of the mean loss, which with `micro_batch` adds up over so many samples at a time."""
        count = len(targets)
        size = self._micro_batch or count
        total = torch.autograd.grad(self.loss(model, x, inputs[:size], targets[:size]), x)[0]
        if size < count:
            total.mul_(share(self.problem.loss, targets[:size], targets, x))
        for start in range(size, count, size):
            part = slice(start, start + size)
            loss = self.loss(model, x, inputs[part], targets[part])
            total.add_(torch.autograd.grad(scaled(self.problem.loss, loss, targets[part], targets), x)[0])
        return total

    def _copy(self) -> Copy:
        """This thread's own copy of the model: functional_call swaps its parameters while it runs."""
        if not hasattr(self._thread, "copy"):
            self._thread.copy = Copy.of(self.model, self.problem.statistics)
            if self._compiles:
                compile_blocks(self._thread.copy.model)
        copy: Copy = self._thread.copy
        return copy
