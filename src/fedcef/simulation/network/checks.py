"""What does not go together: a network, a method and the other options."""

from __future__ import annotations

import torch

from fedcef.algorithms.algorithm import Algorithm
from fedcef.core.errors import ConfigError
from fedcef.core.network import Network
from fedcef.core.round import Rounds
from fedcef.simulation.engine import Engine
from fedcef.simulation.network.population import Population

IN_A_TRACE = ("preset", "up_mbit", "down_mbit", "latency_ms", "spread", "step_s", "step_spread")
OF_ASYNC = ("concurrency", "buffer", "discount")


def changed(network: Network, *names: str) -> str:
    """The first of these options that is not at its default, with its section; "" if there is none."""
    fields = Network.model_fields
    return next((f"network.{name}" for name in names if getattr(network, name) != fields[name].default), "")


def check_network(network: Network, engine: Engine, population: Population) -> None:
    """Refuse a network on which the method has no rounds, or on which a round might never end."""
    if network.unavailable == "silent" and not population.always_there and not network.deadline:
        raise ConfigError(
            "A round would wait for ever for clients that are away; give network.deadline, or take "
            "network.unavailable = 'not_drawn'."
        )
    if network.trace and (idle := changed(network, "availability", "availability_s")):
        raise ConfigError(f"A trace says itself when clients are there; leave {idle} out.")
    if population.always_there and (idle := changed(network, "availability_s", "unavailable")):
        raise ConfigError(
            f"All clients are always there, so that {idle} has no effect; leave it out, or give network.availability."
        )
    if network.trace and (idle := changed(network, *IN_A_TRACE)):
        raise ConfigError(f"A trace says itself how fast clients are; leave {idle} out.")
    if network.mode == "async":
        _check_asynchronous(network, engine.algorithm, engine.rounds)
    else:
        _check_rounds(network, engine, population)


def _check_rounds(network: Network, engine: Engine, population: Population) -> None:
    algorithm, rounds = engine.algorithm, engine.rounds
    if idle := changed(network, *OF_ASYNC):
        raise ConfigError(f"In rounds {idle} has no effect; leave it out, or take network.mode = 'async'.")
    if network.at_least > rounds.cohort_size:
        raise ConfigError(
            f"network.at_least is {network.at_least}; it must be at most the {rounds.cohort_size} clients of a round."
        )
    if network.at_least > 1 and not network.deadline:
        raise ConfigError(
            "network.at_least is how many replies a deadline waits for, and there is none; leave it out, or give "
            "network.deadline."
        )
    name = type(algorithm).__name__
    keeps_sums = algorithm.adds_up != () and algorithm.client_init(torch.zeros(1))
    if network.over_selection > 1 and rounds.cohort_size == rounds.num_clients:
        raise ConfigError(
            "network.over_selection asks for more clients than take part, and all of them take part; give "
            "clients_per_round."
        )
    drops = network.deadline > 0 or network.over_selection > 1
    if drops and algorithm.counts_alike:
        raise ConfigError(
            f"With these options {name} deals its entries out among the clients that are asked, and needs all their "
            "replies; leave network.deadline and network.over_selection out."
        )
    if (drops or not population.always_there) and (
        not algorithm.partial_participation or (engine.weights is not None and keeps_sums)
    ):
        raise ConfigError(
            f"With these options {name} needs all clients in every round; leave network.deadline, "
            "network.over_selection and availability out."
        )


def _check_asynchronous(network: Network, algorithm: Algorithm, rounds: Rounds) -> None:
    name = type(algorithm).__name__
    if not algorithm.asynchronous:
        raise ConfigError(
            f"{name} has no asynchronous form: its clients do more than send a change of the model that they were "
            "handed; take fedavg, fedprox, fedpaq or one of the fedopt family, or network.mode = 'rounds'."
        )
    if network.over_selection > 1 or network.at_least > 1:
        raise ConfigError(
            "network.over_selection and network.at_least are for rounds; the asynchronous mode has network.concurrency "
            "and network.buffer."
        )
    if network.concurrency > rounds.num_clients:
        raise ConfigError(
            f"network.concurrency is {network.concurrency}; it must be at most num_clients = {rounds.num_clients}."
        )
    if rounds.training.budget:
        raise ConfigError("A byte budget plans for rounds; leave it out, or take network.mode = 'rounds'.")
