"""A slice of `make fuzz`: mutated frames of every form, and frames made to take long."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from .test_work import PER_ENTRY, PER_PAYLOAD
from .work import instructions


def fuzzer(name: str) -> ModuleType:
    """A file of fuzz/, which is a script and in no package."""
    path = Path(__file__).parents[2] / "fuzz" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_mutated_frames_of_every_form() -> None:
    summary = fuzzer("fuzz_wire").run(4_000)
    assert summary.past_checksum > 3_000  # most mutations reach the decoders
    assert 200 < summary.valid < 2_000
    assert set(summary.payloads) == {"Dense", "Sparse", "Seeded", "Rotated", "LowRank", "Relay"}
    assert len(summary.sentences) > 80
    assert summary.in_context > 3


def test_frames_made_to_take_long_take_few_instructions() -> None:
    """However many entries, bits and shapes there are; seconds are for `make fuzz`."""
    slow = fuzzer("fuzz_time")
    for what, data in slow.cases(20_000, 30):
        found = {}
        taken = instructions(lambda data=data, found=found: found.update(it=slow.computed(data)))  # type: ignore[misc]
        payloads, _ = found.get("it", (1, 0))
        by_hand = 60 if "shapes" in what else PER_ENTRY if "Huffman" in what or "signs" in what else 0
        assert taken < PER_PAYLOAD * (1 + payloads) + by_hand * 20_000, what
    log = slow.torn_log(40_000)
    assert instructions(lambda: slow.split(log)) < 25 * len(log)
