"""A cursor over bytes that cannot be trusted: every length is checked before anything is allocated."""

from __future__ import annotations

import struct
from typing import Any

from fedcef.core.errors import FedcefError


class WireError(FedcefError):
    """Bytes that are not a valid frame, or a message that cannot be written as one."""


class Reader:
    """Hands out consecutive views of `data`; nothing is copied."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        """The number of bytes that were not taken yet."""
        return len(self._data) - self._position

    def take(self, size: int, what: str) -> memoryview:
        """The next `size` bytes; `what` they are is said if there are fewer."""
        if not 0 <= size <= self.remaining:
            raise WireError(f"{size} bytes are needed for {what}, but only {self.remaining} are left.")
        start, self._position = self._position, self._position + size
        return self._data[start : self._position]

    def unpack(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        """The next fixed-size fields."""
        return layout.unpack(self.take(layout.size, what))
