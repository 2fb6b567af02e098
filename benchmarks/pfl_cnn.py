"""pfl-research's CIFAR-10 benchmark as a problem of ours: its network, its users and its local work.

1,000 users with 50 images each, 50 of them a round, one epoch of batches of 10 at rate 0.1, plain averaging.  Two
things differ: pfl-research goes through a user's images in their order and may draw a user twice in a round; here the
order is random in every round, and a cohort has 50 users.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedcef import FedAvg, Problem
from fedcef.problems.data.datasets import Dataset, load
from fedcef.problems.draws import steps_of_epochs
from fedcef.problems.problem import Samples

USERS, IMAGES, COHORT, BATCH, LR, ROUNDS = 1000, 50, 50, 10, 0.1, 1500
OPTIONS: dict[str, Any] = {"batch_size": BATCH, "batches": "epochs", "clients_per_round": COHORT}


def network(seed: int = 0, dropout: bool = True) -> nn.Sequential:
    """Two convolutions without padding and a hidden layer, dropout after the pool and after that; p = 1,626,442."""
    torch.manual_seed(seed)
    drop = [nn.Dropout(p) if dropout else nn.Identity() for p in (0.25, 0.5)]
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), drop[0]),
        *(nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), drop[1], nn.Linear(128, 10)),
    )
    for module in model:
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
    return model if dropout else nn.Sequential(*(m for m in model if not isinstance(m, nn.Identity)))


def images(seed: int = 0, random: bool = False) -> tuple[list[tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
    """Every user's images and labels, dealt out at random, and the test set; `random`: noise, for times alone."""
    generator = torch.Generator().manual_seed(seed)
    data = _noise(generator) if random else load("cifar10")
    order = torch.randperm(len(data.train_targets), generator=generator)[: USERS * IMAGES].view(USERS, IMAGES)
    users = [(data.train_inputs[rows], data.train_targets[rows]) for rows in order]
    return users, (data.test_inputs, data.test_targets)


def _noise(generator: torch.Generator) -> Dataset:
    inputs = torch.randn(USERS * IMAGES, 3, 32, 32, generator=generator)
    targets = torch.randint(0, 10, (USERS * IMAGES,), generator=generator)
    return Dataset(inputs, targets, inputs[:1000], targets[:1000], num_classes=10)


def problem(seed: int = 0, random: bool = False, dropout: bool = True) -> Problem:
    """The benchmark's problem."""
    users, test = images(seed, random)
    return Problem.build(network(seed, dropout), nn.functional.cross_entropy, users, Samples(*test))


def method(task: Problem) -> FedAvg:
    """Plain averaging of one epoch's work."""
    return FedAvg(local_lr=LR, local_steps=steps_of_epochs(task.sizes, BATCH))
