"""What several files of this folder play with; those with a `problem` of their own take that."""

import pytest
import torch

from fedcef import Problem
from fedcef.problems.clients.drawn import drawn


@pytest.fixture(scope="module")
def problem():
    """A hundred thousand clients with eight of 300 samples each, of whom hardly any comes twice."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 20, generator=generator)
    targets = (inputs[:, :10] @ torch.randn(10, 6, generator=generator)).argmax(1)
    torch.manual_seed(0)
    clients = drawn(inputs, targets, 100_000, size=8)
    return Problem.build(torch.nn.Linear(20, 6), torch.nn.functional.cross_entropy, clients, test=(inputs, targets))
