"""Runs from Python that differ in their seeds are one method in the report, as those of a sweep are."""

import torch
from torch import nn

from fedcef import FedAvg, Problem, run
from fedcef.report import load_runs
from fedcef.report.data.groups import group_runs


def test_runs_whose_start_follows_the_seed_are_one_method(tmp_path):
    data = [(torch.randn(6, 3), torch.tensor([0, 1] * 3)) for _ in range(2)]
    for seed in (0, 1, 2):
        torch.manual_seed(seed)
        problem = Problem.build(nn.Linear(3, 2), nn.functional.cross_entropy, data)
        for label in ("A", "B"):
            run(problem, FedAvg(local_lr=0.1), rounds=1, seed=seed, out=tmp_path / f"{label}-{seed}", label=label)
    methods = group_runs(load_runs(sorted(tmp_path.iterdir())))
    assert {method.label: len(method.records) for method in methods} == {"A": 3, "B": 3}
