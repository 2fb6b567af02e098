"""Mean errors for normal, Laplace and Student-t3 entries, beside figures that were measured without this code.

The expected ones are from the specification sheet of the project (mean of |C(x) - x|²/|x|² at p = 16384).  Student's t
with three degrees of freedom has no fourth moment, so the mean over a few vectors is itself uncertain: 5%, or three
standard errors of ours where that is more.  TernGrad's goes by the largest entry alone and is as uncertain for all.
"""

import pytest
import torch

from fedcef.compressors import (
    QSGD,
    STC,
    BlockwiseTopK,
    Drive,
    Eden,
    LayerwiseTopK,
    Natural,
    OneBit,
    PowerSGD,
    RandK,
    ScaledSign,
    TernGrad,
    TopK,
)
from fedcef.core import rng
from fedcef.core.layout import Layout
from fedcef.core.rng import round_key

DIM, COUNT = 16384, 40

MEASURED = {
    "topk 1%": (TopK(ratio=0.01), 0.916, 0.839, 0.651),
    "topk 10%": (TopK(ratio=0.1), 0.562, 0.408, 0.294),
    "randk 1%": (RandK(ratio=0.01), 0.990, 0.990, 0.990),
    "blockwise, 1 of 128": (BlockwiseTopK(ratio=1 / 128, length=128), 0.937, 0.878, 0.712),
    "layerwise, 1 of 128": (LayerwiseTopK(ratio=1 / 128, sizes=(128,) * 128), 0.937, 0.878, 0.712),
    "scaled sign": (ScaledSign(block=0), 0.362, 0.498, 0.591),
    "one bit": (OneBit(block=0), 0.362, 0.498, 0.591),
    "qsgd s=4": (QSGD(levels=4, block=128, unbiased=True), 1.27, 1.09, 1.00),
    "qsgd s=1": (QSGD(levels=1, block=128, unbiased=True), 8.2, 7.0, 6.0),
    "natural": (Natural(unbiased=True), 0.081, 0.082, 0.083),
    "terngrad": (TernGrad(block=0, unbiased=True), 2.3, 4.4, 16.4),
    "drive": (Drive(block=DIM), 0.364, 0.363, 0.363),
    "drive unbiased": (Drive(block=DIM, unbiased=True), 0.570, 0.569, 0.569),
    "eden 1": (Eden(bits=1, block=DIM), 0.363, 0.363, 0.363),
    "eden 2": (Eden(bits=2, block=DIM), 0.1175, 0.1175, 0.1175),
    "eden 3": (Eden(bits=3, block=DIM), 0.0345, 0.0345, 0.0345),
    "eden 4": (Eden(bits=4, block=DIM), 0.0095, 0.0095, 0.0095),
    "topk 1%, 4 bits": (TopK(ratio=0.01, values="uniform4"), 0.916, 0.839, 0.659),
    "topk 1%, 8 bits": (TopK(ratio=0.01, values="uniform8"), 0.916, 0.839, 0.651),
    "stc 1%": (STC(ratio=0.01), 0.917, 0.844, 0.732),
}


def samples() -> dict[str, torch.Tensor]:
    keys = rng.fold(rng.seed_key(5), torch.arange(COUNT))
    uniform = rng.uniform(rng.fold(keys, 1), DIM) - 0.5
    normal, *others = (rng.normal(rng.fold(keys, i), DIM) for i in (2, 3, 4, 5))
    chi = (sum(other.square() for other in others) / 3).sqrt()
    return {
        "normal": rng.normal(keys, DIM),
        "laplace": -uniform.sign() * torch.log1p(-2 * uniform.abs()),
        "student": normal / chi,
    }


SAMPLES = samples()


@pytest.mark.parametrize("name", MEASURED)
def test_mean_errors_are_as_measured(name):
    compressor, *expected = MEASURED[name]
    for (kind, x), figure in zip(SAMPLES.items(), expected, strict=True):
        decoded = compressor.compress(x.float(), round_key(0, 0, torch.arange(COUNT))).dense()
        errors = (decoded - x).square().sum(-1) / x.square().sum(-1)
        slack = max((0.12 if name == "terngrad" else 0.05) * figure, 3 * float(errors.std()) / COUNT**0.5)
        assert float(errors.mean()) == pytest.approx(figure, abs=slack), kind


def test_terngrad_s_error_is_known_from_the_vector():
    for x in SAMPLES.values():
        decoded = TernGrad(block=0, unbiased=True).compress(x, round_key(0, 0, torch.arange(COUNT))).dense()
        errors = (decoded - x).square().sum(-1) / x.square().sum(-1)
        omega = x.abs().amax(-1) * x.abs().sum(-1) / x.square().sum(-1) - 1
        assert float((errors / omega).mean()) == pytest.approx(1, abs=0.04)


def test_the_mean_error_of_rank_one_for_normal_matrices():
    compressor = PowerSGD(rank=1).fit(Layout(("w",), ((64, 64),)))
    x = SAMPLES["normal"][:, :4096].float()
    decoded = compressor.compress(x, round_key(0, 0, torch.arange(COUNT))).dense()
    errors = (decoded - x).square().sum(-1) / x.square().sum(-1)
    assert float(errors.mean()) == pytest.approx(0.969, rel=0.01)
