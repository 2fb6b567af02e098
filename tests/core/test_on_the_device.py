"""A round's facts and the ledger live where the run does; torch's `meta` device stands for a GPU."""

import pytest
import torch

from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.simulation.ledger import Ledger

META = torch.device("meta")


def test_the_ledger_is_on_the_device_of_the_run():
    assert {tensor.device for tensor in Ledger.empty(3, META).state().values()} == {META}


@pytest.mark.parametrize("clients_per_round", [0, 2])
def test_a_round_is_on_the_device_of_the_run(clients_per_round):
    rounds = Rounds(Training(clients_per_round=clients_per_round), 5, META)
    round_ = rounds.at(3)
    keys = [round_.key.own, round_.key.shared, round_.server, round_.batches, round_.augmentation, round_.dropout(1)]
    assert {tensor.device for tensor in (round_.number, round_.clients, *keys)} == {META}
    assert rounds.of_client(3, 1).clients.device == META
