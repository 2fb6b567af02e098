"""Sizes: exact, near the entropy, by the paper's rule, and computed without reading anything back."""

from __future__ import annotations

from math import log2

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fedcef.core import rng
from fedcef.wire import (
    Dense,
    FrameKind,
    Levels,
    Nonzeros,
    Payload,
    Powers,
    Seeded,
    Sparse,
    encode,
    frame_nbytes,
    frame_paper_nbytes,
)

from .samples import DISTINCT, DTYPES, every, levels, masked, relays, sparse, stacks, vector


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_stack_s_sizes_are_those_of_its_rows(dtype: torch.dtype) -> None:
    for stack in stacks((2, 3), dtype).values():
        sizes = stack.nbytes()
        assert sizes.dtype == torch.int64
        assert sizes.tolist() == [[len(payload.encode()) for payload in row.rows()] for row in stack.rows()]


@pytest.mark.parametrize("dim", [1, 7, 8, 64, 1000, 20_000])
def test_nonzeros_agree_with_the_form_that_they_take(dim: int) -> None:
    for ratio in (0.0, 0.002, 0.02, 0.2, 0.5, 0.9, 0.97, 1.0):
        stack = Nonzeros(masked((2,), dim, ratio, torch.float16))
        for size, row in zip(stack.nbytes().tolist(), stack.vector, strict=True):
            kept = row.nonzero().squeeze(-1)
            forms = [Sparse(row[kept], kept, dim).encode(), Dense(row + 0.0).encode()]  # + 0.0: no negative zeros
            assert Nonzeros(row).encode() in forms
            assert size == min(len(form) for form in forms)


def test_nonzeros_with_clusters() -> None:
    payload = sparse("three clusters")
    assert Nonzeros(payload.dense()).encode() == payload.encode()
    assert int(Nonzeros(payload.dense()).nbytes()) == len(payload.encode())


@pytest.mark.parametrize("ratio", [0.3, 0.1, 0.01, 0.001])
def test_random_indices_cost_little_more_than_their_entropy(ratio: float) -> None:
    dim = 1_000_000
    count = int(ratio * dim)
    payload = Sparse(torch.zeros(count), rng.subset(rng.seed_key(3), dim, count), dim)
    bits = 8 * (int(payload.nbytes()) - 4 * count) / count
    entropy = (-ratio * log2(ratio) - (1 - ratio) * log2(1 - ratio)) / ratio
    assert entropy * 0.99 < bits < entropy * 1.03


def test_supports_that_differ_from_layer_to_layer_cost_less_than_independent_ones() -> None:
    dim = 1_000_000
    density = torch.full((dim,), 0.002, dtype=torch.float64)
    density[300_000:310_000] = 0.2
    indices = (rng.uniform(rng.seed_key(3), dim) < density).nonzero().squeeze(-1)
    count = len(indices)
    payload = Sparse(torch.zeros(count).half(), indices, dim)
    bits = 8 * (int(payload.nbytes()) - 2 * count) / count
    own_entropy = float(_entropy(density).sum()) / count
    independent_entropy = float(_entropy(torch.tensor(count / dim))) * dim / count
    assert bits < 1.05 * own_entropy < 0.8 * independent_entropy
    assert payload.encode()[10 + 2 * count] == 3  # grouped Rice
    vector = torch.zeros(dim).half()
    vector[indices] = 1
    assert int(Nonzeros(vector).nbytes()) == int(payload.nbytes()) == len(payload.encode())


def _entropy(share: Tensor) -> Tensor:
    return -share * share.log2() - (1 - share) * (1 - share).log2()


@pytest.mark.parametrize(
    ("table", "spread", "excess"),
    [
        ("uniform4", 0.15, 1.04),
        ("uniform4", 0.05, 1.1),
        ("log4bit", 0.15, 1.02),
        ("ternary", 0.2, 1.05),
        ("sign", 0.1, 1.02),
    ],
)
def test_coded_values_cost_little_more_than_their_entropy(table: str, spread: float, excess: float) -> None:
    count = 100_000
    values = levels((), count, table, spread=spread)
    shares = values.codes.int().bincount().double() / count
    entropy = -float((shares * shares.clamp(min=1e-9).log2()).sum())
    assert entropy * 0.999 < 8 * int(values.nbytes()) / count < entropy * excess


def test_what_a_value_costs() -> None:
    """Bits for each of many normal numbers; 9 bits would be a sign and an exponent, log2 3 = 1.585 a trit."""
    numbers = vector(100_000).float()
    codes = (numbers.unsqueeze(-1) > torch.tensor([-0.98, 0.0, 0.98])).sum(-1).to(torch.uint8)
    cost = {
        "powers": Powers.of(numbers),
        "normal2": Levels(codes, torch.ones(1), "normal2"),
        "ternary": Levels((codes % 3).to(torch.uint8), torch.ones(1), "ternary"),
        "signs": Levels((numbers > 0).to(torch.uint8), torch.ones(1), "sign"),
    }
    bits = {name: 8 * int(values.nbytes()) / 100_000 for name, values in cost.items()}
    assert bits["powers"] < 3.65
    assert bits["normal2"] < 1.95
    assert bits["ternary"] < 1.61
    assert bits["signs"] < 1.002


def test_the_rice_parameter_is_the_best_of_all_on_random_and_clustered_supports() -> None:
    for payload in (stacks(())["sparse"], sparse("every seventh"), sparse("cluster at the end")):
        assert isinstance(payload, Sparse)
        gaps = torch.diff(payload.indices, prepend=torch.tensor([-1])) - 1
        count = len(gaps)
        best = min((count + int((gaps >> b).sum()) + 7) // 8 + (count * b + 7) // 8 for b in range(32))
        others = min(4 * count, (payload.dim + 7) // 8)
        assert int(payload.nbytes()) == 11 + 4 * count + min(5 + best, others)


def test_the_paper_s_rule() -> None:
    key = rng.seed_key(0)
    expected: list[tuple[Payload, list[int]]] = [
        (Dense(torch.zeros(2, 10).half()), [40, 40]),
        (Sparse(torch.zeros(2, 3).half(), torch.arange(3).expand(2, 3), 10), [24, 24]),
        (Seeded(torch.zeros(2, 3).double(), key, 10), [12, 12]),
        (Nonzeros(torch.tensor([[0, 0, 1.0, 0, 0, 0], [1, 1, 1, 1, 0, 0]])), [8, 24]),
    ]
    for payload, sizes in expected:
        assert payload.paper_nbytes().tolist() == sizes
        assert payload.paper_nbytes().dtype == torch.int64
    assert frame_paper_nbytes({str(i): payload for i, (payload, _) in enumerate(expected)}).tolist() == [84, 100]


def test_frame_sizes_broadcast_and_are_exact() -> None:
    shared = Dense(torch.ones(4))
    stack = stacks((3,))["nonzeros"]
    sizes = frame_nbytes({"z": shared, "größe": stack})
    assert sizes.dtype == torch.int64
    frames = [encode({"z": shared, "größe": row}, FrameKind.UP, 1) for row in stack.rows()]
    assert sizes.tolist() == [len(frame) for frame in frames]
    assert int(frame_nbytes({})) == len(encode({}, FrameKind.UP, 1)) == 23
    assert int(frame_paper_nbytes({})) == 0


@pytest.mark.parametrize("kind", every())
def test_the_sizes_of_a_stack_of_any_kind(kind: str) -> None:
    stack = every((2, 3))[kind]
    assert stack.nbytes().dtype == torch.int64
    assert stack.nbytes().tolist() == [[len(payload.encode()) for payload in row.rows()] for row in stack.rows()]


@pytest.mark.parametrize("kind", ["relayed sparse", "relayed nonzeros", "relayed rotated levels", "relayed low rank"])
def test_relays_read_nothing_back(kind: str) -> None:
    relay = relays()[kind]
    with FakeTensorMode() as mode:
        fake = relay.map_tensors(mode.from_tensor)
        assert isinstance(fake.nbytes(), FakeTensor)
        assert fake.nbytes().shape == fake.paper_nbytes().shape == ()
        assert fake.dense().shape == (600,)


@pytest.mark.parametrize("kind", DISTINCT)
def test_sizes_read_nothing_back(kind: str) -> None:
    """Fake tensors have shapes but no values: whatever would read one, or make a shape of one, raises."""
    payload = every((2, 3))[kind]
    with FakeTensorMode() as mode:
        fake = payload.map_tensors(mode.from_tensor)
        assert isinstance(fake.nbytes(), FakeTensor)
        assert fake.nbytes().shape == (2, 3)
        assert fake.paper_nbytes().shape == (2, 3)
        assert frame_nbytes({"c": fake}).shape == (2, 3)
        assert frame_paper_nbytes({"c": fake}).shape == (2, 3)
        assert fake.dense().shape == (2, 3, 600)


def test_a_read_back_would_be_noticed() -> None:
    with FakeTensorMode(), pytest.raises(Exception, match="_local_scalar_dense"):
        torch.ones(3).sum().item()
