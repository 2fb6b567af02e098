"""How much work something is, counted and not timed: the instructions of Python that it takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from fedcef.core.errors import FedcefError


def instructions(function: Callable[[], object]) -> int:
    """The bytecode instructions that are executed in Python code; a `FedcefError` ends it.

    Each makes at most one operation of NumPy or torch, on arrays whose memory is bounded (test_hostile.py).  So where
    this number goes with the payloads and not with what they hold, the time goes with payloads and memory.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except FedcefError:
        pass
    finally:
        sys.settrace(before)
    return count
