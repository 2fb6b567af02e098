"""How many clients may take part in a round: from one to all."""

import pytest

from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.training import Training


@pytest.mark.parametrize(("asked", "size"), [(1, 1), (3, 3), (4, 4), (0, 4)])
def test_from_one_to_all(asked, size):
    rounds = Rounds(Training(clients_per_round=asked), 4)
    assert rounds.cohort_size == size
    assert len(rounds.cohort(2)) == len(set(rounds.cohort(2).tolist())) == size


def test_no_more_than_there_are():
    with pytest.raises(ConfigError, match="clients_per_round is 5; it must be between 1 and num_clients = 4"):
        Rounds(Training(clients_per_round=5), 4)


@pytest.mark.parametrize("connected", [[0, 1, 2, 3], [0, 2, 3], [1, 3], [2]])
def test_of_those_who_can_be_reached_no_more_than_asked_for(connected):
    rounds = Rounds(Training(clients_per_round=2), 4)
    chosen = rounds.cohort_among(connected, 1)
    assert len(chosen) == min(2, len(connected))
    assert set(chosen) <= set(connected)
