"""The fused local step against its formula."""

from __future__ import annotations

import pytest
import torch

from fedcef import kernels
from fedcef.regularizers import soft_threshold

if not kernels.available():
    pytest.skip("needs Triton, and CUDA or TRITON_INTERPRET=1", allow_module_level=True)

from fedcef.kernels.update import corrected_step

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.3])
@pytest.mark.parametrize("p", [7, 5003])  # shorter and longer than a block of the kernel
def test_step(dtype: torch.dtype, shared: bool, on_device: bool, threshold: float, p: int) -> None:
    generator = torch.Generator().manual_seed(p)
    x_hat, g_sum, g, correction = torch.randn(4, 3, p, generator=generator, dtype=dtype).to(DEVICE)
    if shared:
        correction = correction[0]
    expected, expected_sum = x_hat - 0.1 * (g + correction), g_sum + g
    numbers = [torch.tensor(v, dtype=dtype, device=DEVICE) if on_device else v for v in (0.1, threshold)]
    x = corrected_step(x_hat, g_sum, g, correction, *numbers)
    torch.testing.assert_close(x_hat, expected)
    torch.testing.assert_close(g_sum, expected_sum)
    torch.testing.assert_close(x, soft_threshold(expected, threshold))
