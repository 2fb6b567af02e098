"""Compressors on a CUDA device: the same as on a CPU, and recorded in a CUDA graph."""

import pytest
import torch

from fedcef.core import rng
from fedcef.core.layout import Layout
from fedcef.core.rng import Key, round_key

from .setting import CASES, DIM, vectors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
every_case = pytest.mark.parametrize("case", CASES)


def stack() -> torch.Tensor:
    kinds = vectors(torch.float32)
    return torch.stack([kinds[kind] for kind in ("zero", "gaussian", "heavy-tailed", "few values")])


@every_case
def test_the_gpu_sends_what_the_cpu_sends(case):
    x, key = stack(), round_key(0, 1, torch.arange(4))
    here = CASES[case].compress(x, key)
    there = CASES[case].compress(x.cuda(), Key(key.shared.cuda(), key.own.cuda()))
    torch.testing.assert_close(there.dense().cpu(), here.dense(), rtol=1e-5, atol=1e-6)
    assert there.nbytes().tolist() == [len(row.encode()) for row in there.rows()]


@every_case
def test_a_recorded_compression_is_replayed(case):
    compressor, x = CASES[case], stack().cuda()
    key = round_key(0, 1, torch.arange(4, device="cuda"))
    compressor.compress(x, key)  # libraries set themselves up on first use
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        payload = compressor.compress(x, key)
        decoded, sizes = payload.dense(), payload.nbytes()
    x.copy_(rng.normal(rng.fold(rng.seed_key(9), torch.arange(4)), DIM))
    graph.replay()
    expected = compressor.compress(x, key)
    assert torch.equal(decoded, expected.dense())
    assert torch.equal(sizes, expected.nbytes())


def test_a_large_stack_fits():
    layout = Layout(("w", "b"), ((512, 2048), (512,)))
    x = torch.randn(10, layout.size, device="cuda")
    key = round_key(0, 1, torch.arange(10, device="cuda"))
    for compressor in CASES.values():
        decoded = compressor.fit(layout).compress(x, key).dense()
        assert bool(decoded.isfinite().all())
