"""Things with tensors in them as bytes and a buffer: what is pickled, and numbers that travel as they are."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_ALIGNED = 16  # bytes: a tensor in a buffer begins at a multiple, as its type may ask for


class _Pickler(pickle.Pickler):
    """Leaves tensors out, and notes where they will lie in a buffer."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []
        self.size = 0

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return None
        start, self.size = self.size, self.size + -(-obj.nbytes // _ALIGNED) * _ALIGNED
        self.tensors.append(obj)
        return start, tuple(obj.shape), obj.dtype, obj.device.type


class _Unpickler(pickle.Unpickler):
    """Takes tensors from a buffer; those that were not on the host come to a device."""

    def __init__(self, file: io.BytesIO, buffer: Tensor, device: torch.device) -> None:
        super().__init__(file)
        self._buffer, self._device = buffer, device

    def persistent_load(self, pid: Any) -> Tensor:
        start, shape, dtype, kind = pid
        flat = self._buffer[start : start + torch.Size(shape).numel() * dtype.itemsize]
        tensor = flat.view(dtype).view(shape)
        return tensor.to("cpu" if kind == "cpu" else self._device)


class Packed:
    """A thing taken apart."""

    def __init__(self, thing: Any) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(thing)
        self.text = file.getvalue()
        self._tensors, self.size = pickler.tensors, pickler.size

    def fill(self, buffer: Tensor) -> None:
        """Write the tensors into a buffer of at least `size` bytes, on any device."""
        for start, tensor in self._placed():
            flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
            buffer[start : start + len(flat)] = flat.to(buffer.device)

    def _placed(self) -> Iterator[tuple[int, Tensor]]:
        start = 0
        for tensor in self._tensors:
            yield start, tensor
            start += -(-tensor.nbytes // _ALIGNED) * _ALIGNED


def unpacked(text: bytes, buffer: Tensor, device: torch.device) -> Any:
    """The thing that was taken apart into this text and a buffer that begins with its tensors."""
    return _Unpickler(io.BytesIO(text), buffer, device).load()
