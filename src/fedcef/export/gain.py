"""What shrinking gained: parameters, bytes, latency, and that the outputs stayed the same."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn

from fedcef.core.threads import single_thread

BATCHES = (1, 64)
TOLERANCE = 1e-5
"""How far the outputs of a shrunk model may be from those of the whole one, as a share of the largest output."""

_SECONDS = 0.5  # for every batch size
_LEAST = 7  # times at least


@dataclass(frozen=True)
class Size:
    """How large and how quick a model is."""

    parameters: int
    file_bytes: int
    latency_s: tuple[float, ...]
    """Median of a forward pass, by batch size."""


@torch.inference_mode()
def latencies(models: list[nn.Module], inputs: Tensor) -> list[float]:
    """Each model's median time for one forward pass on one thread, in turns, so that a busy machine is fair to all."""
    times: list[list[float]] = [[] for _ in models]
    with single_thread():
        for model in models:
            model(inputs)
        end = time.perf_counter() + _SECONDS
        while len(times[0]) < _LEAST or time.perf_counter() < end:
            for model, its in zip(models, times, strict=True):
                start = time.perf_counter()
                model(inputs)
                its.append(time.perf_counter() - start)
    return [median(its) for its in times]
