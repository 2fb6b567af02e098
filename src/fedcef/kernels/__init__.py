"""GPU kernels in Triton, for all clients at once; nothing here imports Triton until a kernel module is imported."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch


def available() -> bool:
    """Whether the kernels can run: Triton is installed, and there is a GPU or its interpreter is switched on."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return find_spec("triton") is not None and (interpreted or torch.cuda.is_available())
