"""The device that settings name."""

from __future__ import annotations

import torch

from fedcef.core.errors import ConfigError


def device_of(name: str) -> torch.device:
    """The device of this name, which must be here; auto is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; it must be cpu, cuda or auto.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {name!r}, but torch sees no CUDA device here; use device = 'cpu'.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise ConfigError(f"device is {name!r}, but torch sees no CUDA device beyond cuda:{last}; use one of those.")
    return device
