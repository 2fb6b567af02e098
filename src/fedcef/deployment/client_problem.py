"""One client's part of a problem, and the server's, which has no training data."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedcef.algorithms.algorithm import Oracle
from fedcef.core.rng import round_key
from fedcef.oracles.oracle import Batches, GradientOracle, make_oracle
from fedcef.problems.problem import Problem, Samples
from fedcef.runs.settings import Settings


def one_client(problem: Problem, client: int) -> Problem:
    """A problem with this client alone; its samples are numbered from 0, as its minibatches are drawn."""
    samples = problem.client_samples(client)
    return replace(
        problem,
        train=Samples(samples.inputs.clone(), samples.targets.clone()),
        starts=problem.starts.new_zeros(1),
        sizes=problem.sizes[client : client + 1].clone(),
        test=None,
    )


def shard_of(config: Settings, client: int) -> Problem:
    """The problem of one client.  A problem of the user's own reads this client's data only."""
    problem = config.build_problem((client,))
    return problem if problem.num_clients == 1 else one_client(problem, client)


def without_data(problem: Problem) -> Problem:
    """The problem as a server knows it: model, regulariser, start, test set, and how many clients there are."""
    nothing = Samples(problem.train.inputs[:0].clone(), problem.train.targets[:0].clone())
    return replace(
        problem, train=nothing, starts=torch.zeros_like(problem.starts), sizes=torch.zeros_like(problem.sizes)
    )


def gradients_of(config: Settings, shard: Problem) -> GradientOracle:
    """How a client computes gradients; the kind is chosen as the simulator would."""
    return make_oracle(shard, config.oracle, Batches(config.batch_size), config.clip_norm or None, config.precision)


def oracle_of_round(gradients: GradientOracle, seed: int, round_: int, client: int, steps: int) -> Oracle:
    """The minibatch gradients of one client in one round: vectors (p,) on the CPU, computed where the data is."""
    device = gradients.problem.z0.device
    key = round_key(seed, round_, torch.tensor([client], device=device))
    stacked = gradients.for_round(torch.zeros(1, dtype=torch.int64, device=device), key, steps)
    return lambda x, k: stacked(x.to(device), k)[0].cpu()
