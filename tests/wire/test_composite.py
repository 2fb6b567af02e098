"""Vectors that are computed from what is sent: rotations, products, relays, and the choice between forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedcef.algorithms.received import mean_of
from fedcef.core import rng
from fedcef.wire import (
    Dense,
    Levels,
    LowRank,
    Nonzeros,
    Powers,
    Relay,
    Rotated,
    Sparse,
    WireError,
    rotate,
    smallest,
    unrotate,
)

from .samples import DISTINCT, decoded_part, every, masked, stacks, vector


@pytest.mark.parametrize("block", [1, 2, 8, 256])
@pytest.mark.parametrize("dim", [1, 7, 256, 300])
def test_a_rotation_is_orthogonal_and_undone(dim: int, block: int) -> None:
    keys = rng.fold(rng.seed_key(1), torch.arange(3))
    x = masked((3,), dim, 1.0)
    y = rotate(x, keys, block)
    assert y.shape == (3, -(-dim // block) * block)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(unrotate(y, keys, dim, block), x, rtol=1e-5, atol=1e-6)
    assert torch.equal(rotate(x[1], keys[1], block), y[1])


def test_a_rotation_is_a_hadamard_matrix_after_signs() -> None:
    hadamard = np.array([[(-1) ** (i & j).bit_count() for j in range(8)] for i in range(8)])
    key = rng.seed_key(4)
    signs = np.where(rng.bits(key, 8).numpy() < 0, -1, 1)
    x = vector(8).float()
    np.testing.assert_allclose(rotate(x, key, 8).numpy(), hadamard @ (signs * x.numpy()) / 8**0.5, rtol=1e-5, atol=1e-6)


def test_a_rotation_spreads_a_single_entry() -> None:
    y = rotate(torch.eye(1024)[3], rng.seed_key(0), 1024)
    assert torch.equal(y.abs(), torch.full((1024,), 1 / 32))


@pytest.mark.parametrize("block", [0, 3, 2**17])
def test_blocks_are_powers_of_two(block: int) -> None:
    with pytest.raises(WireError, match=f"blocks of {block} is not possible"):
        rotate(torch.ones(4), rng.seed_key(0), block)


def test_factors_are_multiplied_in_the_order_of_ranks() -> None:
    left, right, rest = vector(4 * 3).float(), vector(5 * 3, seed=1).float(), vector(2, seed=2).float()
    got = LowRank(left, right, rest, (1, (4, 5), 1), 3).dense()
    products = [torch.outer(left.view(4, 3)[:, r], right.view(5, 3)[:, r]) for r in range(3)]
    expected = (products[0] + products[1] + products[2]).flatten()
    assert torch.equal(got, torch.cat([rest[:1], expected, rest[1:]]))


def test_powers_drop_the_mantissa() -> None:
    sent = Powers.of(torch.tensor([1.0, 1.999, -3.0, 0.0, -0.0, 1e-40, -1e-40, 2.0**-126, 3e38]))
    assert sent.dense().tolist() == [1.0, 1.0, -2.0, 0.0, 0.0, 0.0, 0.0, 2.0**-126, 2.0**127]
    assert not sent.dense()[3:7].signbit().any()


@pytest.mark.parametrize("kind", DISTINCT)
def test_a_relay_is_what_the_server_computes(kind: str) -> None:
    clients = every((5,))[kind]
    for share in (1.0, 0.3):
        server = share * mean_of(clients.rows())
        sent = Relay(clients, share)
        received = decoded_part(sent.encode())
        for relay in (sent, received, Relay.of(clients.rows(), share)):
            assert torch.equal(relay.dense().view(torch.int32), (server + 0.0).view(torch.int32))
        assert torch.equal(sent.dense(), Nonzeros(server).dense())
        assert sent.largest() == received.largest() == max(row.largest() for row in clients.rows())


def test_a_relay_of_float64_vectors_is_summed_in_float64() -> None:
    clients = stacks((3,), torch.float64)["sparse"]
    assert torch.equal(decoded_part(Relay(clients, 0.3).encode()).dense(), 0.3 * mean_of(clients.rows()))


def test_few_clients_relayed_are_shorter_than_their_mean() -> None:
    supports = torch.stack([rng.subset(rng.seed_key(client), 20_000, 200) for client in range(3)])
    codes = torch.zeros(3, 200, dtype=torch.uint8)
    clients = Sparse(Levels(codes, torch.ones(3, 1), "sign"), supports, 20_000)
    increment = 0.3 * mean_of(clients.rows())
    payload = smallest(Nonzeros(increment), Relay(clients, 0.3))
    assert isinstance(decoded_part(payload.encode()), Relay)
    assert torch.equal(decoded_part(payload.encode()).dense(), payload.dense())
    assert int(payload.nbytes()) == len(payload.encode()) < int(Nonzeros(increment).nbytes()) / 2


def test_the_smallest_is_chosen_row_by_row_and_the_first_on_a_tie() -> None:
    rows = torch.stack([masked((), 600, 0.01), masked((), 600, 1.0)]) + 0.0
    stack = smallest(Dense(rows), Nonzeros(rows))
    got = [decoded_part(row.encode()) for row in stack.rows()]
    assert isinstance(got[0], Sparse)
    assert isinstance(got[1], Dense)
    assert stack.nbytes().tolist() == [len(row.encode()) for row in stack.rows()]
    assert smallest(Dense(rows[0]), Dense(rows[0] + 1)).encode() == Dense(rows[0]).encode()
    one = Dense(rows)
    assert smallest(one) is one


def test_what_cannot_be_the_smallest() -> None:
    with pytest.raises(WireError, match="smallest of no payloads"):
        smallest()
    with pytest.raises(WireError, match=r"dimensions \[3, 4\] cannot decode to the same"):
        smallest(Dense(torch.ones(3)), Dense(torch.ones(4)))


@pytest.mark.parametrize("kind", DISTINCT)
def test_moving_a_payload_moves_its_tensors(kind: str) -> None:
    there = every((2,))[kind].to("meta")
    assert there.nbytes().device.type == "meta"
    assert there.dense().shape == (2, 600)


def test_rotated_values_are_not_float64() -> None:
    with pytest.raises(WireError, match="cannot be float64"):
        Rotated(torch.ones(4).double(), torch.tensor(0), 4, 4).encode()
