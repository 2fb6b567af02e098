"""What is decoded and what is counted is the same on a GPU, bit for bit, and can be recorded in a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from .samples import DISTINCT, every, relays

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.mark.parametrize("kind", every((3,)) | relays())
def test_a_gpu_gets_the_same_bits(kind: str) -> None:
    here = (every((3,)) | relays())[kind]
    there = here.to("cuda")
    assert torch.equal(there.dense().cpu().view(torch.int32), here.dense().view(torch.int32))
    assert torch.equal(there.nbytes().cpu(), here.nbytes())
    rows = zip(there.rows(), here.rows(), strict=True) if here.nbytes().ndim else [(there, here)]
    assert all(a.encode() == b.encode() for a, b in rows)


@pytest.mark.parametrize("kind", [*DISTINCT, *relays()])
def test_sizes_and_values_are_recorded_in_a_graph(kind: str) -> None:
    there = (every((3,)) | relays())[kind].to("cuda")
    expected = there.dense(), there.nbytes()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = there.dense(), there.nbytes()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(recorded, expected, strict=True))
