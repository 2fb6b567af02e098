"""A problem: a model, a loss, every client's data, a regulariser and a start point."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence, Sized
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedcef.core.errors import ProblemError
from fedcef.core.layout import Layout
from fedcef.core.training import Weighting
from fedcef.problems.augment import CropFlip
from fedcef.problems.client_data import ClientData, PooledData, Samples
from fedcef.regularizers import Regularizer, Zero

__all__ = ["Loss", "Problem", "Samples", "Weighting"]

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
        parameters = _parameters(model)
        if not clients and test is None:
            raise ProblemError("The problem has no clients; give one (inputs, targets) pair or data set for each.")
        tests = None if test is None else _samples(test, "the test set")
        shards = [_samples(data, f"client {i}") for i, data in enumerate(clients)]
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
        )
        if augment is not None and pooled.inputs.ndim != 4:
            raise ProblemError(
                "Only images (channels, height, width) can be cropped and mirrored; take augment = None."
            )
        problem._try_one_batch()
        return problem

    @property
    def num_clients(self) -> int:
        return len(self.sizes)

    @property
    def dim(self) -> int:
        """p, the number of parameters."""
        return self.layout.size

    @property
    def classifies(self) -> bool:
        """Whether targets are class numbers, so that there is an accuracy."""
        return not self.train.targets.is_floating_point()

    @property
    def equal_sizes(self) -> bool:
        """Whether all clients have equally many samples."""
        return not self.num_clients or int(self.sizes.min()) == int(self.sizes.max())

    @property
    def data(self) -> ClientData:
        """The clients' samples, as oracles and evaluation ask for them."""
        return PooledData(self.train, self.starts, self.sizes)

    def client_samples(self, client: int, count: int | None = None) -> Samples:
        """A client's samples, or the first `count` of them."""
        return self.data.samples(client, count)

    def outputs(self, model: nn.Module, x: Tensor, inputs: Tensor) -> Tensor:
        """The model's outputs with the parameters x, (p,)."""
        return functional_call(model, self.layout.unflatten(x), (inputs,))  # type: ignore[no-any-return]

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Problem:
        """The same problem on another device, or computed in another floating type."""

        def move(t: Tensor) -> Tensor:
            return t.to(device, dtype if t.is_floating_point() else None)

        return replace(
            self,
            model=deepcopy(self.model).to(device, dtype),
            train=Samples(move(self.train.inputs), move(self.train.targets)),
            test=None if self.test is None else Samples(move(self.test.inputs), move(self.test.targets)),
            starts=self.starts.to(device),
            sizes=self.sizes.to(device),
            z0=move(self.z0),
            truth=None if self.truth is None else move(self.truth),
        )

    def _two_samples(self) -> tuple[Samples, str]:
        """Samples to try the model with, and whose they are."""
        if self.num_clients:
            return self.client_samples(0, 2), "client 0"
        assert self.test is not None, "a problem has clients or a test set"
        return Samples(self.test.inputs[:2], self.test.targets[:2]), "the test set"

    def _try_one_batch(self) -> None:
        """Fail here, with a sentence, rather than in the middle of a run."""
        batch, whose = self._two_samples()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # torch only warns of outputs and targets that broadcast by accident
                value = self.loss(self.outputs(self.model, self.z0, batch.inputs), batch.targets)
        except Exception as error:
            raise ProblemError(
                f"The model or the loss cannot take a batch of {whose} (inputs {tuple(batch.inputs.shape)} "
                f"{batch.inputs.dtype}, targets {tuple(batch.targets.shape)} {batch.targets.dtype}): {error}"
            ) from error
        if value.ndim != 0:
            raise ProblemError(
                f"The loss must return one number, the mean over the batch; it returned shape {tuple(value.shape)}."
            )


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters; a module that carries more than those is refused."""
    buffers = [name for name, _ in model.named_buffers()]
    if buffers:
        raise ProblemError(
            f"The model has buffers that are not parameters ({', '.join(buffers[:3])}{', …' if buffers[3:] else ''}); "
            "they would neither be averaged nor sent.  Replace batch normalisation by nn.GroupNorm, or build it "
            "with track_running_stats=False."
        )
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    if frozen:
        raise ProblemError(
            f"The parameter {frozen[0]} is frozen (requires_grad=False); make it trainable or a constant."
        )
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    if not parameters:
        raise ProblemError("The model has no parameters to train.")
    kinds = {p.dtype for p in parameters.values()}
    if len(kinds) > 1 or kinds & {torch.float16, torch.bfloat16}:
        raise ProblemError(f"The parameters must all be float32 or all float64; found {sorted(map(str, kinds))}.")
    return parameters


def _samples(data: Any, whose: str) -> Samples:
    """A pair of tensors, or a map-style data set of (input, target) pairs, as one table."""
    if isinstance(data, Samples):
        samples = data
    elif isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(p, Tensor | np.ndarray) for p in data):
        samples = Samples(*map(torch.as_tensor, data))
    elif isinstance(data, Sized) and hasattr(data, "__getitem__"):
        try:
            rows = [data[i] for i in range(len(data))]
            parts = [torch.stack([torch.as_tensor(row[j]) for row in rows]) if rows else torch.empty(0) for j in (0, 1)]
        except Exception as error:
            raise ProblemError(f"The samples of {whose} do not make a table of inputs and targets: {error}") from error
        samples = Samples(*parts)
    else:
        raise ProblemError(
            f"The data of {whose} must be an (inputs, targets) pair of tensors or a map-style data set, "
            f"not {type(data).__name__}."
        )
    if len(samples.inputs) != len(samples.targets):
        raise ProblemError(f"The data of {whose} has {len(samples.inputs)} inputs but {len(samples.targets)} targets.")
    if len(samples) == 0:
        raise ProblemError(f"The data of {whose} is empty; leave the client out or give it samples.")
    for what, values in (("inputs", samples.inputs), ("targets", samples.targets)):
        if values.is_floating_point() and not values.sum(dtype=torch.float64).isfinite():
            bad = (~values.reshape(len(values), -1).isfinite()).any(-1).sum()
            raise ProblemError(
                f"The {what} of {whose} have NaN or infinite values in {int(bad)} of {len(samples)} samples; "
                "leave these samples out or fill them in."
            )
    return samples
