"""GPU kernels in Triton, for all clients at once; Triton is imported only where there is a GPU or its interpreter."""

from __future__ import annotations

import os
import re
import warnings
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

import torch

NEEDED_TRITON = (3, 4)  # the first with descriptors of tensors that are made on the host
NEEDED_CAPABILITY = (8, 0)  # the first with bfloat16 products


def available(device: torch.device | None = None) -> bool:
    """Whether the kernels can run on a GPU, by default the current one, or in Triton's interpreter.

    Where there is a GPU and something else is missing, a warning says once what that is; callers then do without.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        return _triton() >= NEEDED_TRITON
    if not torch.cuda.is_available():
        return False
    return _suits(torch.cuda.current_device() if device is None or device.index is None else device.index)


@lru_cache
def _suits(index: int) -> bool:
    """Whether a GPU and the installed Triton will do; told once for each GPU where not."""
    found, capability = _triton(), torch.cuda.get_device_capability(index)
    if found < NEEDED_TRITON:
        here = f"{_dotted(found)} is installed" if found else "it is not installed"
        lacking = f"Triton {_dotted(NEEDED_TRITON)} or newer, and {here}"
    elif capability < NEEDED_CAPABILITY:
        name = torch.cuda.get_device_name(index)
        lacking = f"compute capability {_dotted(NEEDED_CAPABILITY)}, and {name} has {_dotted(capability)}"
    else:
        return True
    warnings.warn(f"The GPU runs without fedcef's own kernels, which is slower: they need {lacking}.", stacklevel=3)
    return False


@lru_cache
def _triton() -> tuple[int, ...]:
    """The version of Triton, such as (3, 4); empty where there is none."""
    if find_spec("triton") is None:
        return ()
    return tuple(int(part) for part in re.findall(r"\d+", import_module("triton").__version__)[:2])


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
