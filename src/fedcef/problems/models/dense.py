"""Models of linear layers."""

from __future__ import annotations

from math import prod

from torch import nn


class SoftmaxRegression(nn.Sequential):
    """One linear layer: a convex problem."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(input_shape), num_classes))


class MLP(nn.Sequential):
    """Two hidden layers of 64."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(prod(input_shape), 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, num_classes),
        )
