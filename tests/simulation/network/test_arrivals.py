"""Who takes part in a round, and when it ends."""

from math import inf

import pytest
import torch

from fedcef.core.network import Network
from fedcef.simulation.network.arrivals import arrivals


@pytest.mark.parametrize(
    ("times", "wanted", "network", "rows", "seconds"),
    [
        ([3.0, 1.0, 2.0], 3, {}, [0, 1, 2], 3.0),  # all are waited for
        ([3.0, 1.0, 2.0, 9.0], 2, {}, [1, 2], 2.0),  # the first two of four asked
        ([5.0, 5.0, 5.0], 2, {}, [0, 1], 5.0),  # a tie goes by the clients' numbers
        ([3.0, 1.0, 2.0], 3, {"deadline": 2.5}, [1, 2], 2.5),  # one comes too late
        ([3.0, 1.0, 2.0], 3, {"deadline": 2.0}, [1, 2], 2.0),  # and one just in time
        ([3.0, 1.0, 2.0], 3, {"deadline": 4.0}, [0, 1, 2], 3.0),  # nobody does: nothing to wait for
        ([3.0, 1.0, 2.0, 0.5], 2, {"deadline": 4.0}, [1, 3], 1.0),
        ([3.0, 1.0, 2.0], 3, {"deadline": 0.5}, [1], 1.0),  # the deadline waits for the first
        ([3.0, 1.0, 2.0], 3, {"deadline": 0.5, "at_least": 2}, [1, 2], 2.0),
        ([3.0, 1.0, 2.0], 2, {"deadline": 0.5, "at_least": 9}, [1, 2], 2.0),  # never more than are wanted
        ([inf, 1.0, inf], 3, {"deadline": 6.0}, [1], 6.0),  # the others never come, which nobody knows before
        ([inf, 1.0, 2.0], 2, {"deadline": 6.0}, [1, 2], 2.0),
    ],
)
def test_rounds_end_when_they_should(times, wanted, network, rows, seconds):
    ended = arrivals(torch.tensor(times, dtype=torch.float64), wanted, Network(**network))
    assert ended.rows.tolist() == rows
    assert ended.seconds == seconds


def test_a_round_that_too_few_answer_must_be_tried_again():
    times = torch.tensor([inf, 1.0, inf], dtype=torch.float64)
    assert arrivals(times, 3, Network(deadline=5.0, at_least=2)) is None
