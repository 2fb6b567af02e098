"""A node's side: from an order to the model that the app works with, and from its result to an answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedcef.flower.two_lines.coding import difference, frames_of, key_of, opened
from fedcef.flower.two_lines.layout import Arrays, Layout, as_tensor
from fedcef.flower.two_lines.messages import FROM_NOTHING, NOTHING, RESULT, SHORT, Answer, Order, memory_after
from fedcef.flower.two_lines.notation import compressor, is_exact
from fedcef.flower.two_lines.store import Checked, NodeState, NodeStore, VectorFile
from fedcef.wire import FrameKind, WireError, head_of
from fedcef.wire.checkpoint import DamagedError


class NeedsMore(Exception):
    """What this node has and what the order brings do not make up the model."""


Entry = list[memoryview]
"""The frames of one version, one for each piece."""


class Node:
    """One model of one run on one node; for the time of one message."""

    def __init__(self, store: NodeStore, order: Order) -> None:
        self.store, self.order = store, order
        self.state = store.load() or NodeState(secrets.token_bytes(SHORT))
        self.done_before = bool(self.state.answer) and self.state.order == order.order
        if order.known and not self.done_before:
            self.state.settle(order.memory)
        self.version = self.state.version
        """Of the replica on the disk, as far as it can be used."""
        self.given: dict[str, NDArray[Any]] = {}

    @property
    def layout(self) -> Layout:
        """The arrays of the model, as the server once described them."""
        return Layout.from_json(self.state.layout)

    def receive(self, beside: Arrays = MappingProxyType({})) -> dict[str, NDArray[Any]]:
        """The model that the order means, or that lies beside it; raises `NeedsMore` if only the server can help."""
        if "who" in self.order.text or (not self.order.known and self.state.has_memory):
            raise NeedsMore  # the server does not know which memory counts, but it will once it knows the client
        try:
            return self._received(beside)
        except NeedsMore:
            self.version = -1
            raise

    def _received(self, beside: Arrays) -> dict[str, NDArray[Any]]:
        self._hear(self.order.text)
        layout, order = self.layout, self.order
        types = order.text.get("types")
        if order.text.get("whole"):
            if not layout.fits(beside):
                raise WireError("The model that lies beside the order is not the one that it describes.")
            self.given = dict(beside)
            self.state.version, self.state.replica = -1, None
        else:
            coded = layout.empty()
            try:
                self._follow(layout, coded)
            except DamagedError:
                self.state.version, self.state.replica = -1, None
                raise NeedsMore from None
            found = {**coded, **layout.read_kept(order.kept, types)}
            self.given = {name: found[name] for name in layout.names}
        return self.given

    def answer(self, result: Arrays) -> Answer | None:
        """What to send for the app's arrays, after the memory that it leads to is safe; None if they go as they are."""
        layout, code = self.layout, compressor(self.state.up)
        if is_exact(code) or not layout.fits(result):
            return None
        try:
            frames = self._compress(layout, result)
        except DamagedError:
            self.state.committed, self.state.committed_file = NOTHING, None
            frames = self._compress(layout, result)
        types = [str(result[name].dtype) for name in layout.names]
        text = {} if tuple(types) == layout.types else {"types": types}
        kept = layout.kept_bytes(result)
        answer = Answer(
            self.order.run, self.order.order, self.state.client, RESULT, self.state.committed, text, kept, frames
        )
        self.state.pending = answer.memory_after()
        return answer

    def keep(self, reply: bytes = b"") -> None:
        """Make durable what this message has changed, and the reply to it if there is one."""
        self.state.order, self.state.answer = self.order.order, reply
        self.store.save(self.state)

    # down

    def _hear(self, text: dict[str, Any]) -> None:
        if "layout" in text:
            told = Layout.from_json(text["layout"]).to_json()
            if told != self.state.layout:
                self.state.layout, self.state.version, self.state.replica = told, -1, None
        self.state.up = str(text.get("up", self.state.up))
        if not self.state.layout or not self.state.up:
            raise NeedsMore

    def _follow(self, layout: Layout, coded: Arrays) -> None:
        """Bring the replica up to the order's version, piece by piece, and put it into the arrays."""
        order, state = self.order, self.state
        entries = list(_entries(frames_of(memoryview(order.frames)), len(layout.pieces)))
        if order.since != FROM_NOTHING:
            if not order.since <= state.version <= order.version:
                raise NeedsMore
            entries = entries[state.version - order.since :]
        start = None if order.since == FROM_NOTHING else state.replica
        before = self.store.read(start, layout.number, layout.dim)
        if start is not None and before is None and layout.dim:
            raise NeedsMore
        if not self._leads_there(entries):
            raise NeedsMore
        checked = Checked(before, start)
        if entries:
            with self.store.writing(f"replica-{secrets.token_hex(SHORT)}.bin") as writer:
                for number, (first, last) in enumerate(layout.pieces):
                    piece = _moved(checked.piece(first, last), entries, number, last - first, layout.number)
                    writer.add(piece)
                    layout.put(coded, first, piece)
            state.replica = VectorFile(writer.name, writer.checksum)
        else:
            for first, last in layout.pieces:
                here = checked.piece(first, last)
                if here is None:
                    raise NeedsMore
                layout.put(coded, first, here)
        checked.close()
        state.version, state.digest = order.version, order.digest

    def _leads_there(self, entries: Sequence[Entry]) -> bool:
        """Whether these entries lead from what is here to what the server has."""
        order, state = self.order, self.state
        if not self.layout.dim or any(head_of(entry[0])[0] == FrameKind.STATE for entry in entries):
            return True
        digest = NOTHING if order.since == FROM_NOTHING else state.digest
        for entry in entries:
            digest = memory_after(digest, *entry)
        return digest == order.digest

    # up

    def _compress(self, layout: Layout, result: Arrays) -> bytes:
        """The frames of what the app has changed and what is still owed; what they leave out is the next memory."""
        state, order, code = self.state, self.order, compressor(self.state.up)
        owed = Checked(self.store.read(state.committed_file, np.dtype("<f4"), layout.dim), state.committed_file)
        frames = []
        with self.store.writing(f"memory-{secrets.token_hex(SHORT)}.bin") as writer:
            for number, (first, last) in enumerate(layout.pieces):
                change = layout.piece(result, first, last) - layout.piece(self.given, first, last)
                total = as_tensor(change)
                if (before := owed.piece(first, last)) is not None:
                    total += torch.from_numpy(before)
                key = key_of(order.run, order.version, number)
                frame, decoded = difference(FrameKind.UP, order.version, total, code, key)
                frames.append(frame)
                writer.add((total - decoded).numpy())
        owed.close()
        state.pending_file = VectorFile(writer.name, writer.checksum)
        return b"".join(frames)


def _entries(frames: Any, pieces: int) -> Any:
    """Frames by version."""
    while pieces and (entry := list(islice(frames, pieces))):
        if len(entry) != pieces:
            raise WireError(f"The order ends after {len(entry)} of the {pieces} pieces of a model.")
        yield entry


def _moved(
    piece: NDArray[Any] | None, entries: Sequence[Entry], number: int, dim: int, kind: np.dtype[Any]
) -> NDArray[Any]:
    """A piece of the replica after these entries: each adds to it, or puts another in its place."""
    moved = np.zeros(dim, kind) if piece is None else piece
    for entry in entries:
        what, version = head_of(entry[0])
        values = opened(entry[number], FrameKind(what), version, dim).numpy()
        if what == FrameKind.STATE:
            moved = values.astype(kind)
        else:
            moved += values
    return moved
