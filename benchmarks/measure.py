"""What all benchmarks share: variants in turn, medians, and a record with hardware and versions."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from fedcef.core.threads import cores
from fedcef.runs.summary import versions


def interleaved(variants: Mapping[str, Callable[[], object]], rounds: int, repeats: int) -> dict[str, list[float]]:
    """Seconds per round of every variant, `repeats` times in turn, so that whatever else happens hits all of them.

    On a GPU by its own clock (CUDA events).
    """
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, play in variants.items():
            seconds[name].append(timed(play, rounds))
    return seconds


def timed(play: Callable[[], object], rounds: int) -> float:
    """Seconds per call over `rounds` calls."""
    if not torch.cuda.is_available():
        began = time.perf_counter()
        for _ in range(rounds):
            play()
        return (time.perf_counter() - began) / rounds
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(rounds):
        play()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / rounds


def table(seconds: Mapping[str, list[float]], baseline: str) -> dict[str, Any]:
    """Prints medians, ranges and speed-ups; returns them for the record."""
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, s in medians.items():
        spread = f"{min(seconds[name]):.4f}-{max(seconds[name]):.4f}"
        print(f"  {name:40} {s:8.4f} s a round ({spread})   {medians[baseline] / s:6.2f}x", flush=True)
    return {
        "seconds_per_round": dict(seconds),
        "median_s": medians,
        "speed_up": {name: medians[baseline] / s for name, s in medians.items()},
        "baseline": baseline,
    }


def machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": _processor(), "cores": cores(), "gpu": gpu, "system": platform.platform(), **versions()}


def write(name: str, result: Mapping[str, Any], folder: Path | None = None) -> None:
    """Keep a result as benchmarks/results/NAME.json, or in another folder."""
    folder = folder or Path(__file__).parent / "results"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or "unknown processor"
