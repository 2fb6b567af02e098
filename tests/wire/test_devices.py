"""What is decoded and what is counted is the same on a GPU, bit for bit, and can be recorded in a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from fedcef.wire import Context, Dense, FrameKind, Sparse, decode, encode, faded, frame_nbytes

from .samples import DISTINCT, every, levels, masked, relays

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


def test_contexts_are_the_same_and_are_recorded() -> None:
    c, c_i = masked((), 5000, 0.5), masked((3,), 5000, 0.3)
    activity = faded(c, masked((), 5000, 0.1))
    indices = (c.abs() + c_i.abs() + 0.1 * masked((3,), 5000, 1.0).abs()).topk(200).indices.sort().values
    here = {"own": Sparse(levels((3,), 200, "sign"), indices, 5000), "all": Dense(c)}
    there = {name: payload.to("cuda") for name, payload in here.items()}
    ours = {"own": Context.of(c, activity, c_i), "all": Context.of(c)}
    statistics = c.cuda(), faded(c.cuda(), masked((), 5000, 0.1).cuda()), c_i.cuda()
    theirs = {"own": Context.of(*statistics), "all": Context.of(statistics[0])}
    assert torch.equal(theirs["own"].classes.cpu(), ours["own"].classes)
    sizes = frame_nbytes(here, ours)
    assert (sizes < frame_nbytes(here)).all()
    assert torch.equal(frame_nbytes(there, theirs).cpu(), sizes)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = frame_nbytes(there, {"own": Context.of(*statistics), "all": Context.of(statistics[0])})
    graph.replay()
    assert torch.equal(recorded.cpu(), sizes)
    for near, far, own, known in zip(
        here["own"].rows(), there["own"].rows(), ours["own"].rows(3), theirs["own"].rows(3), strict=True
    ):
        frame = encode({"own": far}, FrameKind.UP, 0, {"own": known})
        assert frame == encode({"own": near}, FrameKind.UP, 0, {"own": own})
        assert torch.equal(decode(frame, contexts={"own": own}).message["own"].dense(), near.dense())
