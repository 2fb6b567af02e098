"""The facts of a round: cohorts, keys and step sizes, the same for all who ask."""

import pytest
import torch

from fedcef.algorithms import FedAvg
from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Purpose
from fedcef.core.round import Rounds, rehearsal_key
from fedcef.core.schedules import Cosine, Step
from fedcef.core.training import Training


def rounds(num_clients=20, **options):
    return Rounds(Training(**options), num_clients)


def test_golden_cohorts():
    """A change here changes every run with some of the clients."""
    some = rounds(seed=3, clients_per_round=4)
    assert [some.cohort(t).tolist() for t in range(3)] == COHORTS
    assert some.at(2).clients.tolist() == COHORTS[2]
    assert some.at(2).share == 0.2


COHORTS = [[0, 1, 2, 17], [3, 10, 16, 18], [1, 12, 15, 16]]


def test_everyone_is_the_cohort_of_all():
    assert rounds().cohort(7).tolist() == list(range(20))
    assert rounds().at(7).share == 1.0


def test_the_server_draws_the_simulator_s_cohort_if_everyone_is_there():
    some = rounds(clients_per_round=6)
    everyone = list(range(20))
    assert all(some.cohort_among(everyone, t) == some.cohort(t).tolist() for t in range(5))
    assert some.cohort_among(everyone, 3, attempt=1) != some.cohort_among(everyone, 3)
    assert set(some.cohort_among([2, 4, 6, 8, 10, 12, 14, 16], 3)) <= {2, 4, 6, 8, 10, 12, 14, 16}
    assert some.cohort_among([5, 7], 3) == [5, 7]


def test_a_client_has_its_row_of_the_round():
    whole, mine = rounds(seed=5).at(3), rounds(seed=5).of_client(3, 17)
    for of in (lambda r: r.compression.own, lambda r: r.batches, lambda r: r.augmentation, lambda r: r.dropout(4)):
        assert int(of(mine)) == int(of(whole)[17])
    assert int(mine.server) == int(whole.server)
    assert int(mine.compression.shared) == int(whole.compression.shared)


def test_keys_are_those_of_the_documented_folds():
    key = rng.round_key(5, 3, torch.arange(20))
    round_ = rounds(seed=5).at(3)
    assert torch.equal(round_.batches, rng.fold(key.own, 1))
    assert torch.equal(round_.compression.own, rng.fold(key.own, 2))
    assert torch.equal(round_.dropout(6), rng.fold(rng.fold(key.own, 9), 6))
    assert torch.equal(round_.augmentation, rng.fold(key.own, 10))
    assert torch.equal(round_.server, rng.fold(key.shared, 11))
    assert torch.equal(rehearsal_key(torch.arange(3)).own, rng.round_key(0, 0, torch.arange(3)).own)


def test_keys_of_different_purposes_never_meet():
    """Rounds, clients, cohorts, partitions and compression each draw from their own keys."""
    keys = []
    for t in range(20):
        round_ = rounds().at(t)
        keys += [int(round_.key.shared), int(round_.server), *round_.key.own.tolist()]
        keys += [int(rng.fold(round_.key.shared, Purpose.COHORT)), int(round_.compression.shared)]
        for own in (round_.compression.own, round_.batches, round_.augmentation, round_.dropout(0), round_.dropout(1)):
            keys += own.tolist()
    keys += [int(rng.data_key(0, purpose)) for purpose in Purpose]
    assert len(keys) == len(set(keys))


def test_steps_follow_the_schedules():
    algorithm = FedAvg(local_lr=0.4, server_lr=2.0)
    assert rounds().at(3).scheduled(algorithm) is algorithm
    some = rounds(rounds=10, local_schedule=Cosine(), server_schedule=Step(every=2, decay=0.5))
    steps = [some.at(t).scheduled(algorithm) for t in (0, 5, 9)]
    assert [float(step.local_lr) for step in steps] == pytest.approx([0.4, 0.2, 0.4 * 0.5 * (1 + -0.9510565163)])
    assert [float(step.server_lr) for step in steps] == pytest.approx([2.0, 0.5, 0.125])


def test_too_many_clients_are_refused():
    with pytest.raises(ConfigError, match="clients_per_round is 21; it must be between 1 and num_clients = 20"):
        rounds(clients_per_round=21)
