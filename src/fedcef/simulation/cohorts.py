"""Which cohorts a method allows, and how their members count."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fedcef.algorithms.aggregating import check_rule
from fedcef.algorithms.algorithm import Algorithm
from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.problems.problem import Problem
from fedcef.simulation.choosing import check_choice


def weigh(problem: Problem, training: Training, weights: Tensor | None) -> Callable[[Tensor], Tensor] | None:
    """How clients count in the mean: as they are told to, by their samples, or alike."""
    if weights is not None:
        return lambda clients: weights[clients]
    if training.weighting == "uniform":
        return None
    return lambda clients: problem.data.sizes_of(clients).to(problem.z0.dtype)


def check_cohorts(algorithm: Algorithm, rounds: Rounds, problem: Problem, weighted: bool) -> None:
    """Refuse cohorts that the method has no round for or that do not exist, and choices that the run could not make."""
    check_choice(algorithm, rounds.training, problem)
    name, size, everyone = type(algorithm).__name__, rounds.cohort_size, rounds.num_clients
    if rounds.training.eval.clients > everyone:
        raise ConfigError(
            f"eval.clients is {rounds.training.eval.clients}; it must be at most the number of clients, {everyone}, or "
            "0 for all."
        )
    if size < everyone and not algorithm.partial_participation:
        raise ConfigError(
            f"{name} needs all clients in every round; leave clients_per_round out (it is {size}, num_clients is "
            f"{everyone})."
        )
    if weighted and algorithm.counts_alike:
        raise ConfigError(f"With these options {name} counts all clients alike; take weighting = 'uniform'.")
    check_rule(algorithm, rounds, weighted)
    keeps_sums = algorithm.adds_up != () and algorithm.client_init(problem.z0)
    if weighted and size < everyone and keeps_sums:
        raise ConfigError(
            f"{name} keeps the server's sums in step with its clients' states only if all clients count alike; take "
            "weighting = 'uniform', or all clients in every round."
        )
