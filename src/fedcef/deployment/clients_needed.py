"""How many replies a round needs."""

from __future__ import annotations

from fedcef.core.errors import ConfigError
from fedcef.deployment.protocol import Protocol
from fedcef.deployment.secure_sums import least_in
from fedcef.runs.deployment_settings import DeploymentSettings


def clients_needed(protocol: Protocol, deployment: DeploymentSettings) -> int:
    """How many accepted replies a round needs; settings by which it could never have them are refused."""
    settings, asked, n = protocol.settings, protocol.rounds.cohort_size, protocol.num_clients
    counted_by_samples = settings.weighting == "samples" and protocol.adds_up != ()
    everyone = not protocol.algorithm.partial_participation or protocol.algorithm.hears_the_end or counted_by_samples
    needed = n if everyone else deployment.min_clients
    needed = max(needed, least_in(settings.secure, asked))
    if everyone and asked < n:
        raise ConfigError(
            f"In a deployment with these settings {settings.algorithm['name']} needs all {n} clients in every round; "
            f"leave clients_per_round out (it is {asked})."
        )
    if needed > asked:
        raise ConfigError(
            f"A round of {settings.algorithm['name']} needs {needed} clients and asks {asked} (clients_per_round) of "
            f"{n}; it cannot need more than it asks."
        )
    return needed
