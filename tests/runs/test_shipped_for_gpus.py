"""Experiments that are made for a GPU or take long: every variant builds and plays a round at a size for a CPU."""

from dataclasses import replace

import pytest
import torch

from fedcef.runs.experiments import load_settings
from fedcef.simulation.simulation import Simulation

SMALL = {
    "language": [
        "data.context=8",
        "data.tokens_per_client=200",
        "data.test_windows=2",
        "model.layers=1",
        "model.heads=2",
        "model.width=16",
    ],
    "resnet_cifar10": [
        "data.name=digits",
        "data.partition=dirichlet",
        "data.min_size=1",
        "model.width=4",
        "model.groups=2",
    ],
}
SMALL["language_small"] = SMALL["language"]
SOME = ["num_clients=100", "clients_per_round=10", "server_lr=3.0"]  # as docs/guides/batchnorm.md has it
CASES = [
    (name, changes, number)
    for name, changes in (("language", ()), ("language_small", ()), ("resnet_cifar10", ()), ("resnet_cifar10", SOME))
    for number in range(len(load_settings(name).compare))
]


@pytest.mark.parametrize(("name", "changes", "number"), CASES)
def test_a_variant_starts(name, changes, number):
    tiny = [*SMALL[name], "batch_size=2", "device=cpu", "precision=float32", *changes]
    variant = load_settings(name, tiny).variants()[number]
    problem = variant.build_problem()
    method = replace(variant.build_algorithm(problem), local_steps=1)
    simulation = Simulation(problem, method, variant)
    simulation.step()
    assert torch.isfinite(simulation.model()).all()
    assert simulation.round == 1
