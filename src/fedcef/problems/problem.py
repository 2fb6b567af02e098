"""A problem: a model, a loss, every client's data, a regulariser and a start point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedcef.core.errors import ProblemError
from fedcef.core.layout import Layout
from fedcef.problems.augment import CropFlip
from fedcef.problems.client_data import ClientData, PooledData, Samples
from fedcef.problems.reading import read_samples
from fedcef.problems.trial import check_loss, trainable_parameters, try_out
from fedcef.regularizers import Regularizer, Zero

__all__ = ["Loss", "Problem", "Samples"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""loss(outputs, targets): the mean over the batch."""


@dataclass(frozen=True, eq=False)
class Problem:
    """min over x of the mean over clients of f_i(x), plus h(x); f_i is the mean loss on client i's samples.

    All clients' samples lie in one table; client i holds rows starts[i] .. starts[i] + sizes[i].
    """

    model: nn.Module
    loss: Loss
    train: Samples
    starts: Tensor  # (N,) int64
    sizes: Tensor  # (N,) int64
    test: Samples | None
    regularizer: Regularizer
    layout: Layout
    z0: Tensor  # (p,)
    truth: Tensor | None = None  # (p,): the parameters that made the data, where they are known
    augment: CropFlip | None = None  # what is done to the images of minibatches
    equal_sizes: bool = True
    """Whether all clients have equally many samples.  One client's part of a problem keeps what the whole one says, so
    that a deployed client computes in the simulator's way."""

    @classmethod
    def build(
        cls,
        model: nn.Module,
        loss: Loss,
        clients: Sequence[Any],
        test: Any = None,
        regularizer: Regularizer | None = None,
        augment: CropFlip | None = None,
    ) -> Problem:
        """A problem from a module and each client's data: an (inputs, targets) pair, or a map-style data set.

        The start point is the module's parameters as they are.  `augment` changes the images of minibatches at random.
        Without clients it is what the server of a deployment knows; then there must be a test set.
        """
        parameters = trainable_parameters(model)
        check_loss(loss)
        if not isinstance(regularizer, Regularizer | None):
            raise ProblemError(f"The regulariser is {regularizer!r}; it must be an object such as L1(1e-4).")
        if not isinstance(clients, Iterable):
            raise ProblemError(f"The clients are {clients!r}; give a list of one (inputs, targets) pair for each.")
        if not clients and test is None:
            raise ProblemError("The problem has no clients; give one (inputs, targets) pair or data set for each.")
        tests = None if test is None else read_samples(test, "the test set")
        shards = [read_samples(data, f"client {i}") for i, data in enumerate(clients)]
        for i, shard in enumerate(shards):
            if shard.shapes != shards[0].shapes:
                raise ProblemError(
                    f"The data of client {i} does not fit client 0's: a sample's input and target have the shapes "
                    f"{shard.shapes}, not {shards[0].shapes}."
                )
        sizes = torch.tensor([len(shard) for shard in shards], dtype=torch.int64)
        nothing = [] if tests is None else [Samples(tests.inputs[:0], tests.targets[:0])]
        tables = shards or nothing
        pooled = Samples(torch.cat([s.inputs for s in tables]), torch.cat([s.targets for s in tables]))
        layout = Layout.of(parameters)
        problem = cls(
            model=model,
            loss=loss,
            train=pooled,
            starts=sizes.cumsum(0) - sizes,
            sizes=sizes,
            test=tests,
            regularizer=(regularizer if regularizer is not None else Zero()).fit(layout),
            layout=layout,
            z0=layout.flatten(parameters).detach().clone(),
            augment=augment,
            equal_sizes=len(set(sizes.tolist())) <= 1,
        )
        if augment is not None and pooled.inputs.ndim != 4:
            raise ProblemError(
                "Only images (channels, height, width) can be cropped and mirrored; take augment = None."
            )
        try_out(problem)
        return problem

    @property
    def num_clients(self) -> int:
        """N, how many clients there are."""
        return len(self.sizes)

    @property
    def dim(self) -> int:
        """p, the number of parameters."""
        return self.layout.size

    @property
    def classifies(self) -> bool:
        """Whether targets are class numbers, so that there is an accuracy."""
        return not self.train.targets.is_floating_point()

    @cached_property
    def data(self) -> ClientData:
        """The clients' samples, as oracles and evaluation ask for them."""
        return PooledData(self.train, self.starts, self.sizes)

    def client_samples(self, client: int, count: int | None = None) -> Samples:
        """A client's samples, or the first `count` of them."""
        return self.data.samples(client, count)

    def outputs(self, model: nn.Module, x: Tensor, inputs: Tensor) -> Tensor:
        """The model's outputs with the parameters x, (p,)."""
        return functional_call(model, self.layout.unflatten(x), (inputs,))  # type: ignore[no-any-return]

    def state_dict(self, x: Tensor) -> dict[str, Tensor]:
        """The parameters x, (p,), as `load_state_dict` takes them: copies by name, tied ones under each of their names.

        >>> problem.model.load_state_dict(problem.state_dict(problem.z0))
        """
        tensors = self.layout.unflatten(x.detach())
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        everything = self.model.named_parameters(remove_duplicate=False)
        return {name: tensors[names[id(parameter)]].clone() for name, parameter in everything}

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Problem:
        """The same problem on another device, or computed in another floating type."""
        loss = self.loss  # class weights move with the problem
        if isinstance(loss, nn.Module) and [*loss.parameters(), *loss.buffers()]:
            loss = deepcopy(loss).to(device, dtype)
        return replace(
            self,
            model=deepcopy(self.model).to(device, dtype),
            loss=loss,
            train=self.train.to(device, dtype),
            test=None if self.test is None else self.test.to(device, dtype),
            starts=self.starts.to(device),
            sizes=self.sizes.to(device),
            z0=self.z0.to(device, dtype),
            truth=None if self.truth is None else self.truth.to(device, dtype),
        )
