"""All clients' convolutional networks in one pass of kernels that know the clients' axis; see `fedcef.kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedcef import kernels
from fedcef.core.errors import ConfigError
from fedcef.core.round import Round
from fedcef.core.training import Training
from fedcef.oracles.gradient_oracle import GradientOracle
from fedcef.problems.client_data import Samples
from fedcef.problems.problem import Problem

if TYPE_CHECKING:
    from fedcef.kernels.cnn import BatchedNetwork


class Batched(GradientOracle):
    """All clients' convolutional networks by kernels, on a GPU."""

    def __init__(self, problem: Problem, training: Training) -> None:
        super().__init__(problem, training)
        network = batched_network(problem, training)
        if network is None:
            raise ConfigError(
                "oracle = 'batched' needs Triton on a GPU, minibatches, precision = 'bfloat16', and a chain of 3x3 "
                "convolutions, ReLU, 2x2 max-pooling, linear layers and dropout; use oracle = 'loop'."
            )
        self._network = network

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int) -> Tensor:
        """Every client's clipped gradient, by one pass of the kernels."""
        assert batch is not None, "there are minibatches"
        keys = round_.dropout(k).view(-1) if self._network.drops else None
        return self._network.gradients(
            x, batch.inputs, batch.targets, self.problem.loss, torch.bfloat16, self.clip_norm, keys
        )


def batched_network(problem: Problem, training: Training) -> BatchedNetwork | None:
    """The problem's network as kernels over all clients, where there are such kernels for it."""
    device = problem.z0.device
    suits = training.batch_size and training.precision == "bfloat16" and device.type == "cuda"
    if not (suits and kernels.available(device)):
        return None
    from fedcef.kernels.cnn import BatchedNetwork

    return BatchedNetwork.of(problem.model, problem.layout, tuple(problem.example.inputs.shape[1:]))
