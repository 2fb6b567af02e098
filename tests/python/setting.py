"""A small problem for runs from Python."""

import torch
from torch import nn

from fedcef import L1, FedCEF, Problem, TopK


def small_problem(seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(4, 30, 6, generator=generator)
    targets = (inputs[..., 0] + 0.3 * inputs[..., 1] > 0).long()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    clients = list(zip(inputs, targets, strict=True))
    return Problem.build(model, nn.functional.cross_entropy, clients[1:], test=clients[0], regularizer=L1(1e-3))


def method(ratio=0.3):
    return FedCEF(local_lr=0.1, local_steps=3, compressor=TopK(ratio=ratio))
