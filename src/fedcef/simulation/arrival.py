"""Values on their way from the device to the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor

from fedcef.wire import Payload

T = TypeVar("T", Tensor, Payload)


class Arrival(Generic[T]):
    """Copies of named tensors or payloads as they are now, in the order of the device's work; nothing waits for them.

    What is on the host already is not copied.
    """

    def __init__(self, values: Mapping[str, T]) -> None:
        self._values: dict[str, T] = {name: value.to("cpu", non_blocking=True) for name, value in values.items()}
        self._event = torch.cuda.current_stream().record_event() if torch.cuda.is_available() else None

    def is_here(self) -> bool:
        """Whether the values have arrived."""
        return self._event is None or self._event.query()

    def get(self) -> dict[str, T]:
        """The values on the host; waits for them."""
        if self._event is not None:
            self._event.synchronize()
        return self._values
