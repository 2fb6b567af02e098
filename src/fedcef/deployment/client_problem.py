"""One client's part of a problem and its gradients; and the server's part, which has no training data."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Oracle
from fedcef.core.round import Rounds
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.client_data import PooledData
from fedcef.problems.problem import Problem
from fedcef.runs.settings import Settings


def problem_of_client(settings: Settings, client: int) -> Problem:
    """The problem of one client.  A problem of the user's own reads this client's data only."""
    problem = settings.build_problem((client,))
    return problem if problem.num_clients == 1 else one_client(problem, client)


def one_client(problem: Problem, client: int) -> Problem:
    """A problem with this client alone; its samples are numbered from 0, as its minibatches are drawn."""
    return replace(problem, data=problem.data.only((client,)), test=None)


def without_data(problem: Problem) -> Problem:
    """The problem as a server knows it: model, regulariser, start, test set, and how many clients there are."""
    return replace(problem, data=PooledData.empty(problem.example, problem.num_clients))


class ClientGradients:
    """One client's minibatch gradients: vectors (p,) on the CPU, computed where its data is."""

    def __init__(self, settings: Settings, problem: Problem, client: int) -> None:
        """`problem` has this client alone; `client` is its number in the run."""
        self._device = problem.z0.device
        self._oracle = make_oracle(problem, settings)
        self._rounds = Rounds(settings, settings.num_clients, self._device)
        self._client = torch.tensor([client], device=self._device)

    def in_round(self, number: int, steps: int, statistics: Tensor | None = None) -> Oracle:
        """The gradients of a round's local steps, on the minibatches that the simulator would draw for this client.

        Running statistics that are averaged begin as `statistics`, (q,).
        """
        only_row = torch.zeros(1, dtype=torch.int64, device=self._device)
        start = None if statistics is None else statistics.to(self._device)
        gradients = self._oracle.for_round(self._rounds.at(number, self._client), steps, only_row, start)
        return _OnCpu(gradients, self._device)


class _OnCpu:
    """One client's oracle on a device, for vectors on the CPU."""

    def __init__(self, gradients: Any, device: torch.device) -> None:
        self._gradients, self._device = gradients, device

    def __call__(self, x: Tensor, k: int) -> Tensor:
        with torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext():
            gradients: Tensor = self._gradients(x.to(self._device), k)
            return gradients[0].cpu()

    @property
    def statistics(self) -> Tensor:
        """The client's running statistics so far, (q,), where they are averaged."""
        table: Tensor = self._gradients.statistics
        return table[0].cpu()
