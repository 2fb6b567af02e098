"""A server's side of one model: what every up-to-date node holds, and what brings the others there.

The strategy has its model x, the nodes have the replica r.  When x has changed, the difference x - r is compressed and
everyone adds what it decodes to r, the server too: what one difference leaves out is part of the next.  So r follows x
without a memory of its own, and the differences are a log of which a node gets what it has missed.

A node trains from r and sends what it has changed.  The strategy is handed x plus that change: it averages, clips,
selects or steps in terms of its own model, and never learns that nodes hold another.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from fedcef.compressors import Compressor
from fedcef.flower.two_lines.coding import beginning, difference, frames_of, key_of, opened, whole
from fedcef.flower.two_lines.layout import FLOATS, Arrays, Layout, as_tensor
from fedcef.flower.two_lines.messages import FROM_NOTHING, NOTHING, SHORT, Answer, as_array, memory_after
from fedcef.flower.two_lines.notation import is_exact, text_of
from fedcef.wire import FrameKind, WireError

ROOM = 1 << 16
"""What an answer may take beyond its arrays in full."""

Model = dict[str, Array]
"""A model as Flower holds it."""


class Channel:
    """One model of a run, at its current version."""

    def __init__(
        self, model: Mapping[str, Array], up: Compressor, down: Compressor, first: Compressor | None = None
    ) -> None:
        self.run = secrets.token_bytes(SHORT)
        self.up, self.down = up, down
        self._take(model)
        self.layout = Layout.of(self.arrays)
        self.version, self.digest = 0, NOTHING
        self.replica = np.zeros(0 if self.exact else self.layout.dim, self.layout.number)
        self.log: dict[int, bytes] = {}
        if not self.exact:
            self._move(first)

    @classmethod
    def restored(
        cls,
        model: Mapping[str, Array],
        up: Compressor,
        down: Compressor,
        *,
        run: bytes,
        layout: list[Any],
        version: int,
        digest: bytes,
        replica: NDArray[Any],
        log: bytes,
        lengths: list[list[int]],
    ) -> Channel:
        """A channel as it was saved."""
        channel = cls.__new__(cls)
        channel.run, channel.up, channel.down = run, up, down
        channel._take(model)
        channel.layout, channel.version, channel.digest = Layout.from_json(layout), version, digest
        channel.replica, channel.log, at = replica, {}, 0
        for entry, length in lengths:
            channel.log[entry] = log[at : at + length]
            at += length
        return channel

    def _take(self, model: Mapping[str, Array]) -> None:
        self.model: Model = dict(model)
        self.arrays: Arrays = numbers(self.model)
        self._frames: dict[int | None, tuple[int, Array]] = {}

    @property
    def exact(self) -> bool:
        """Whether nodes get the model itself."""
        return is_exact(self.down)

    @property
    def kept(self) -> bytes:
        """The arrays that travel as they are."""
        return b"" if self.exact else self.layout.kept_bytes(self.arrays)

    def follows(self, model: Mapping[str, Array]) -> bool:
        """Whether a model has the same arrays, by name and shape."""
        return tuple(model) == self.layout.names and self.layout.fits(numbers(model))

    def is_current(self, model: Mapping[str, Array]) -> bool:
        """Whether it is the strategy's model that nodes were last brought to."""
        return same_model(model, self.model)

    def advance(self, model: Mapping[str, Array]) -> None:
        """The strategy has another model: make the difference that everyone is to add."""
        self._take(model)
        self.version += 1
        if not self.exact:
            self._move(self.down)

    def types(self) -> list[str] | None:
        """The types of the arrays that travel as they are, where they are not those of the first model."""
        types = tuple(str(self.arrays[name].dtype) for name in self.layout.names)
        at = [self.layout.names.index(name) for name in self.layout.kept]
        return None if all(types[i] == self.layout.types[i] for i in at) else list(types)

    def since(self, version: int | None) -> tuple[int, Array]:
        """The frames for a node that has this version (None: nothing), and the version that they begin after.

        The same Array for all such nodes.
        """
        if version not in self._frames:
            begin, frames = self._since(version)
            self._frames[version] = (begin, as_array(frames))
        return self._frames[version]

    def _since(self, version: int | None) -> tuple[int, bytes]:
        if self.exact or version == self.version:
            return self.version, b""
        snapshot_size = self.replica.nbytes
        begin = -1 if version is None else version
        missed = [self.log.get(number) for number in range(begin + 1, self.version + 1)]
        if all(entry is not None for entry in missed):
            frames = b"".join(entry for entry in missed if entry is not None)
            if len(frames) <= snapshot_size:
                return (FROM_NOTHING if version is None else version), frames
        pieces = [whole(self.version, self.replica[first:last]) for first, last in self.layout.pieces]
        return FROM_NOTHING, b"".join(pieces)

    def text(self) -> dict[str, Any]:
        """What a node must know that has never met this run."""
        return {"layout": self.layout.to_json(), "up": text_of(self.up)}

    # up

    def limit(self) -> int:
        """The bytes of the longest answer that makes sense."""
        return (
            2
            * sum(
                np.dtype(kind).itemsize * n
                for kind, n in zip(self.layout.types, self.layout.sizes.values(), strict=True)
            )
            + ROOM
        )

    def rebuilt(self, answer: Answer, base: Arrays, version: int) -> Model:
        """The model of a node for the strategy: the strategy's own, and what the node has changed."""
        layout = self.layout
        types = _types(answer, layout)
        frames = list(islice(frames_of(memoryview(answer.frames)), len(layout.pieces) + 1))
        if len(frames) != len(layout.pieces):
            raise WireError(f"The answer has not one frame for each of the {len(layout.pieces)} pieces of the model.")
        coded = layout.empty(types)
        for frame, (first, last) in zip(frames, layout.pieces, strict=True):
            change = opened(frame, FrameKind.UP, version, last - first).numpy()
            layout.put(coded, first, layout.piece(base, first, last) + change)
        found = {**coded, **layout.read_kept(answer.kept, types)}
        return {name: Array(found[name]) for name in layout.names}

    def moved(self, model: Mapping[str, Array], base: Arrays, given: NDArray[Any]) -> Model:
        """The same of a node that sends its model as it is: that was made from the replica it was given."""
        try:
            arrays, layout = numbers(model), self.layout
        except (ValueError, TypeError, EOFError) as error:
            raise WireError(f"Its arrays cannot be read: {error}.") from None
        if not layout.fits(arrays):
            return dict(model)
        coded = layout.empty([str(array.dtype) for array in arrays.values()])
        for first, last in layout.pieces:
            change = layout.piece(arrays, first, last) - given[first:last]
            layout.put(coded, first, layout.piece(base, first, last) + change)
        return {name: Array(coded[name]) if name in coded else model[name] for name in layout.names}

    # down

    def _move(self, by: Compressor | None) -> None:
        """Add to the replica what a compressor leaves of its difference to the model; None: half precision."""
        frames = []
        if is_exact(self.up):  # who answers the last version is compared with the replica that it was given
            self.replica = self.replica.copy()
        for number, (start, stop) in enumerate(self.layout.pieces):
            behind = as_tensor(self.layout.piece(self.arrays, start, stop) - self.replica[start:stop])
            if by is None:
                frame, decoded = beginning(self.version, behind)
            else:
                key = key_of(self.run, self.version, number)
                frame, decoded = difference(FrameKind.DOWN, self.version, behind, by, key)
            self.replica[start:stop] += decoded.numpy()
            frames.append(frame)
        entry = b"".join(frames)
        self.digest = memory_after(self.digest, *frames)
        self.log[self.version] = entry
        while len(self.log) > 1 and sum(map(len, self.log.values())) > self.replica.nbytes:
            del self.log[min(self.log)]  # who missed it gets the whole replica, which is shorter


def same_model(record: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    """Whether two records hold the same bytes under the same names."""
    return list(record) == list(other) and all(
        array is other[name] or array.data == other[name].data for name, array in record.items()
    )


def numbers(model: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    """A model's arrays for NumPy."""
    return {name: array.numpy() for name, array in model.items()}


def _types(answer: Answer, layout: Layout) -> list[str]:
    """The types of the arrays that a node returns."""
    told = (answer.text or {}).get("types")
    if told is None:
        return list(layout.types)
    if not isinstance(told, list) or len(told) != len(layout.names) or not all(isinstance(kind, str) for kind in told):
        raise WireError("The answer's types are not one name for each array.")
    kinds = dict(zip(layout.names, told, strict=True))
    if not all(kind in (FLOATS if name in layout.coded else _NUMBERS) for name, kind in kinds.items()):
        raise WireError("The answer names types that these arrays cannot have.")
    return list(told)


_NUMBERS = {np.dtype(code).name for code in "?bBhHiIlLqQefdFD"}
