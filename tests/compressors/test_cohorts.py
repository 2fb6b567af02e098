"""A cohort's messages in one stack, as the simulator has them, and one by one, as a server does, come to the same."""

import pytest
import torch

from fedcef.algorithms.received import Received, mean_of
from fedcef.compressors import RandK
from fedcef.core.rng import round_key
from fedcef.wire import Context, FrameKind, encode, frame_nbytes, frame_paper_nbytes

from .setting import CASES, DIM, inputs, same_bits

CONTEXT = Context.of(torch.linspace(0, 1, DIM) ** 8)
KEY = torch.tensor(7)


def cohort(case, dtype, clients):
    """Zeros, ties, large and tiny numbers: a row of each kind that can be sent, or of the first of them."""
    kinds = inputs(CASES[case], dtype)
    kinds["huge"] *= 1e-27
    x = torch.stack([*kinds.values()])[:clients]
    return CASES[case].compress(x, round_key(0, 0, torch.arange(len(x))))


@pytest.mark.parametrize("clients", [1, 9])
@pytest.mark.parametrize("case", CASES)
def test_a_stack_and_its_rows_are_received_alike(case, clients):
    for dtype in (torch.float32, torch.float64):
        stack = cohort(case, dtype, clients)
        whole, apart = (Received.of({"c": parts}, KEY, share=0.5) for parts in (stack, stack.rows()))
        assert same_bits(whole.mean["c"], apart.mean["c"])
        assert [row.encode() for row in whole.parts["c"]] == [row.encode() for row in apart.parts["c"]]
        weights = torch.linspace(1, 3, clients, dtype=torch.float64)
        for own in (weights, weights.float()):
            assert same_bits(mean_of(stack, own), mean_of(stack.rows(), own))


@pytest.mark.parametrize("case", CASES)
def test_what_is_sent_on_is_counted_exactly(case):
    stack = cohort(case, torch.float32, 4)
    for contexts in ({}, {"c": CONTEXT}):
        down, other = (
            {"c": Received.of({"c": parts}, KEY).without_loss("c", 0.5)} for parts in (stack.to("cpu"), stack.rows())
        )
        frame = encode(other, FrameKind.DOWN, 0, contexts)
        assert encode(down, FrameKind.DOWN, 0, contexts) == frame
        assert int(frame_nbytes(down, contexts)) == int(frame_nbytes(other, contexts)) == len(frame)
        assert int(frame_paper_nbytes(down)) == int(frame_paper_nbytes(other))
        up = [len(encode({"c": row}, FrameKind.UP, 0, contexts)) for row in stack.rows()]
        assert frame_nbytes({"c": stack}, contexts).tolist() == up


def test_every_client_of_a_stack_has_a_weight():
    stack = RandK().compress(torch.ones(3, DIM), round_key(0, 0, torch.arange(3)))
    with pytest.raises(RuntimeError, match="must match"):
        mean_of(stack, torch.tensor([1.0, 2.0]))
