"""All clients in one evaluation, by vmap.

It pays where a client's step is small (linear models, MLPs) and costs where it turns convolutions into grouped ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.round import Round
from fedcef.core.training import Training
from fedcef.oracles.dropout import Copy, draws_itself, has_dropout
from fedcef.oracles.gradient_oracle import GradientOracle
from fedcef.problems.client_data import Samples
from fedcef.problems.problem import Problem

Result = TypeVar("Result")


class Stacked(GradientOracle):
    """All clients in one evaluation."""

    def __init__(self, problem: Problem, training: Training) -> None:
        super().__init__(problem, training)
        if not self.batch_size and not problem.equal_sizes:
            raise ConfigError(
                "oracle = 'stacked' with batch_size = 0 needs clients of equal size; use oracle = 'loop'."
            )
        if draws_itself(problem.model):
            raise ConfigError(
                "oracle = 'stacked' cannot give its masks to a layer that draws them inside (attention or a recurrent "
                "network with dropout, or a layer of your own); use oracle = 'loop'."
            )
        copy = Copy.of(self.model, problem.statistics)
        self._draws = has_dropout(problem.model)

        def loss(x: Tensor, inputs: Tensor, targets: Tensor, key: Tensor | None) -> Tensor:
            if key is not None:
                copy.masks.start(key)
            return self.loss(copy.model, x, inputs, targets)

        def moving_loss(
            x: Tensor, inputs: Tensor, targets: Tensor, key: Tensor | None, statistics: Tensor
        ) -> tuple[Tensor, Tensor]:
            if key is not None:
                copy.masks.start(key)
            return self.moving_loss(copy.model, x, inputs, targets, statistics)

        in_dims = (0, 0, 0, 0 if self._draws else None)
        self._gradients: Callable[..., Tensor] = torch.func.vmap(torch.func.grad(loss), in_dims)
        self._moving: Callable[..., tuple[Tensor, Tensor]] = torch.func.vmap(
            torch.func.grad(moving_loss, has_aux=True), (*in_dims, 0)
        )

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int) -> Tensor:
        """Every client's clipped gradient, all of them by one call of the model."""
        return self.clipped(self._called(self._gradients, x, clients, batch, round_, k))

    def moving(
        self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int, statistics: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same with running statistics."""
        g, moved = self._called(self._moving, x, clients, batch, round_, k, statistics)
        return self.clipped(g), moved

    def _called(
        self,
        function: Callable[..., Result],
        x: Tensor,
        clients: Tensor,
        batch: Samples | None,
        round_: Round,
        k: int,
        *more: Tensor,
    ) -> Result:
        batch = self.problem.data.tables(clients) if batch is None else batch
        keys = round_.dropout(k).view(-1) if self._draws else None
        try:
            return function(x, batch.inputs, batch.targets, keys, *more)
        except RuntimeError as error:
            if "randomness" in str(error):
                raise ProblemError(
                    "The model draws random numbers as it runs; write them as nn.Dropout modules, which are drawn "
                    "reproducibly, or take oracle = 'loop'."
                ) from error
            if "saved tensor hooks" in str(error):
                raise ProblemError(
                    "The model computes activations again on the way back (checkpointing), which cannot be done for "
                    "all clients at once; take oracle = 'loop'."
                ) from error
            if "vmap" in str(error) or "Batching rule" in str(error):
                raise ProblemError(
                    "The model or the loss reads a number from a tensor (.item(), float(), if) or does something else "
                    f"that cannot be computed for all clients at once; take oracle = 'loop'.  ({_first_line(error)})"
                ) from error
            raise


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
