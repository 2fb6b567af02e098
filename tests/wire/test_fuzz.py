"""A slice of `make fuzz`: mutated frames of every form."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def fuzzer() -> ModuleType:
    """fuzz/fuzz_wire.py, which is a script and in no package."""
    path = Path(__file__).parents[2] / "fuzz" / "fuzz_wire.py"
    spec = importlib.util.spec_from_file_location("fuzz_wire", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_mutated_frames_of_every_form() -> None:
    summary = fuzzer().run(4_000)
    assert summary.past_checksum > 3_000  # most mutations reach the decoders
    assert 200 < summary.valid < 2_000
    assert set(summary.payloads) == {"Dense", "Sparse", "Seeded", "Rotated", "LowRank", "Relay"}
    assert len(summary.sentences) > 80
    assert summary.in_context > 3
