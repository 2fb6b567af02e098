"""What the server has of a round: means, and the forms in which a mean can be passed on without loss."""

import pytest
import torch

from fedcef.algorithms.received import Received, mean_of
from fedcef.compressors import TopK
from fedcef.core.rng import Key
from fedcef.wire import Dense, FrameKind, Nonzeros, Relay, as_stack, decode, encode

KEY = torch.tensor(7)


def sparse_messages(clients=3, dim=1000, ratio=0.002):
    """Payloads with a few entries each, whose common mean is longer than they are together."""
    rows = torch.randn(clients, dim, generator=torch.Generator().manual_seed(1))
    return TopK(ratio=ratio).compress(rows, Key(KEY, KEY.expand(clients))).rows()


def sent(payload):
    """What arrives, through its bytes."""
    return decode(encode({"c": payload}, FrameKind.DOWN, 0)).message["c"]


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_what_is_passed_on_is_the_share_times_the_mean(share):
    """Whether a frame carries the clients' own payloads or the entries of their mean, it decodes to the same bits."""
    parts = {"c": [Dense(torch.ones(4)), Dense(torch.tensor([1.0, -2.0, 0.0, 4.0]))]}
    received = Received.of(parts, KEY, share=share)
    vector = share * received.mean["c"]
    assert torch.equal(sent(received.without_loss("c", share)).dense(), vector)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_quantised_messages_are_relayed(share):
    """Coded values are shorter than the entries of their mean; who relays them must say the share."""
    rows = torch.randn(2, 300, generator=torch.Generator().manual_seed(2))
    key = Key(KEY, torch.tensor([1, 2]))
    payloads = TopK(ratio=0.5, values="sign").compress(rows, key).rows()
    received = Received.of({"c": payloads}, KEY, share=share)
    vector = share * received.mean["c"]
    arrived = sent(received.without_loss("c", share))
    assert isinstance(arrived, Relay)
    assert torch.equal(arrived.dense(), vector)


def test_a_weighted_mean_is_never_relayed():
    """A receiver of the messages alone would form the plain mean."""
    payloads = sparse_messages()
    plain = Received.of({"c": payloads}, KEY)
    weighted = Received.of({"c": payloads}, KEY, weights=torch.tensor([1.0, 2.0, 5.0]))
    assert not plain.weighted
    assert weighted.weighted
    passed = weighted.without_loss("c", 1.0)
    assert isinstance(passed, Nonzeros)
    assert torch.equal(sent(passed).dense(), weighted.mean["c"])
    assert not isinstance(plain.without_loss("c", 1.0), Nonzeros)


def test_members_count_alike_unless_it_is_said():
    payloads = sparse_messages()
    given = Received({"c": mean_of(payloads)}, {"c": as_stack(payloads)}, 1.0, KEY)
    assert not given.weighted
    assert Received.of({"c": payloads}, KEY).share == 1.0


def test_a_weighted_mean_is_in_proportion():
    payloads = [Dense(torch.tensor([1.0, 0.0])), Dense(torch.tensor([5.0, 4.0]))]
    assert mean_of(payloads, torch.tensor([30.0, 10.0])).tolist() == [2.0, 1.0]
    assert mean_of(payloads).tolist() == [3.0, 2.0]


def test_every_message_has_a_weight():
    with pytest.raises(ValueError, match="argument"):
        mean_of([Dense(torch.ones(2))] * 3, torch.tensor([1.0, 2.0]))
