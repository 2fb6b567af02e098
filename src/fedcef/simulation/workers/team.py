"""The processes that a run is split over, by `torch.distributed`.

    torchrun --nproc-per-node 4 -m fedcef run …

starts four of them, each with a rank.  They do the same things in the same order, and meet whenever one needs what
another has: everyone gives something to `exchange` and gets what all gave.  A meeting begins with a few numbers from
each process, by which all learn that one of them has failed or was interrupted.  Then all of them end, at the same
point and in the same state.

Tensors travel between GPUs by NCCL where each process has one of its own, and otherwise between the hosts by gloo.
What is not a tensor is pickled: the processes of a run trust each other.
"""

from __future__ import annotations

import atexit
import os
import pickle
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fedcef.core.errors import EndedElsewhere, FedcefError, RunError
from fedcef.core.threads import share_cores
from fedcef.simulation.workers.packing import Packed, unpacked
from fedcef.simulation.workers.stacks import added

T = TypeVar("T")

_FINE, _INTERRUPTED, _FAILED = range(3)
_PARTING = timedelta(seconds=10)
_PATIENCE = timedelta(hours=2)  # with a process that is slower than others: it may read data or write a snapshot
_INSISTING_S = 5.0  # torchrun passes on a Ctrl-C that the terminal has sent already; a later one is another
_HOST = torch.device("cpu")


class Team:
    """This process and the others of its run.

    Whatever sends or receives must be called by all of them, in the same order.
    """

    def __init__(self) -> None:
        """Those of `torch.distributed`, which must be initialised."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._hosts: Any = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self._devices: Any = None  # the group in which tensors go from GPU to GPU
        self._device = _HOST
        self._interrupted = 0.0  # when
        self.is_together = False
        """Whether this is within `together`."""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def move_to(self, device: torch.device) -> None:
        """Say where this process computes; if all have a GPU of their own, tensors go from one to the other."""
        if device == self._device:
            return
        self._device, self._devices = device, None
        places = self.exchange((socket.gethostname(), str(device)))
        if device.type == "cuda" and dist.is_nccl_available() and len(set(places)) == self.size:
            self._devices = dist.new_group(backend="nccl", timeout=_PATIENCE)

    def exchange(self, mine: T, *, interruptible: bool = False) -> list[T]:
        """What every process gave, in the order of their ranks; what was on a device is on this one's.

        If one of them was interrupted and this is a point to stop at, KeyboardInterrupt is raised in all.
        """
        things: list[T] = self._meet(_INTERRUPTED if interruptible and self._interrupted else _FINE, mine)
        return things

    def from_first(self, make: Callable[[], T]) -> T:
        """What the first process makes, for all."""
        made: T = self.exchange(make() if self.is_first else None)[0]  # type: ignore[assignment]
        return made

    def fail(self, sentence: str) -> int:
        """Tell the others that this process has failed, and why; the rank of the first that has."""
        try:
            self._meet(_FAILED, sentence)
        except EndedElsewhere as error:
            return error.rank
        except RunError:  # there is nobody left to tell
            pass
        return self.rank

    def sum_in_order(
        self, rows: Sequence[Tensor] | Tensor, counts: Sequence[int], dim: int, dtype: torch.dtype
    ) -> Tensor:
        """The sum of everyone's vectors, first those of the first process, added up one after the other.

        The sum so far goes from process to process, and from the last one to all: so its bits are those of one process
        that has all vectors, which nobody needs to have.  `counts` are the processes' numbers of vectors, not all 0.
        """
        holders = [rank for rank, count in enumerate(counts) if count]
        place = holders.index(self.rank) if counts[self.rank] else -1
        group, device = self._way()
        total = torch.empty(dim, dtype=dtype, device=device)
        with _lost_processes_told():
            if place > 0:
                dist.recv(total, holders[place - 1], group=group)
            if place >= 0:
                total = added(total.to(self._device) if place else None, rows).to(device)
            if 0 <= place < len(holders) - 1:
                dist.send(total, holders[place + 1], group=group)
            dist.broadcast(total, holders[-1], group=group)
        return total.to(self._device)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within the block, Ctrl-C in any process ends all of them where they meet next and may stop."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: object) -> None:
            now = time.monotonic()
            if self._interrupted and now - self._interrupted > _INSISTING_S:
                raise KeyboardInterrupt
            self._interrupted = self._interrupted or now

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _meet(self, status: int, mine: Any) -> list[Any]:
        packed = Packed(mine)
        with _lost_processes_told():
            head = torch.tensor([status, len(packed.text), packed.size])
            heads = [h.tolist() for h in self._gathered(head, self._hosts)]
            text = torch.zeros(max(length for _, length, _ in heads), dtype=torch.uint8)
            text[: len(packed.text)] = torch.frombuffer(bytearray(packed.text), dtype=torch.uint8)
            gathered = self._gathered(text, self._hosts)
        texts = [bytes(t[:length].numpy()) for t, (_, length, _) in zip(gathered, heads, strict=True)]
        for rank, (theirs, _, _) in enumerate(heads):
            if theirs == _FAILED:
                raise EndedElsewhere(f"Process {rank} of {self.size} has failed: {pickle.loads(texts[rank])}", rank)
        if any(theirs == _INTERRUPTED for theirs, _, _ in heads):
            self._interrupted = 0.0
            raise KeyboardInterrupt
        size = max(size for _, _, size in heads)
        if not size:
            return [unpacked(text, torch.empty(0, dtype=torch.uint8), self._device) for text in texts]
        group, device = self._way()
        buffer = torch.zeros(size, dtype=torch.uint8, device=device)
        packed.fill(buffer)
        with _lost_processes_told():
            buffers = self._gathered(buffer, group)
        return [unpacked(text, theirs, self._device) for text, theirs in zip(texts, buffers, strict=True)]

    def _way(self) -> tuple[Any, torch.device]:
        """The group in which tensors travel, and the device on which it takes and leaves them."""
        return (self._hosts, _HOST) if self._devices is None else (self._devices, self._device)

    def _gathered(self, mine: Tensor, group: Any) -> list[Tensor]:
        theirs = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(theirs, mine, group=group)
        return theirs


_team: Team | None = None


def _leave() -> None:
    """Part with the other processes, all at once: threads of gloo that lose their peers may abort a process."""
    if dist.is_initialized():
        with suppress(Exception):  # whoever has failed has left already
            dist.monitored_barrier(timeout=_PARTING)
        dist.destroy_process_group()


def team() -> Team | None:
    """The processes that this one was started with, or has joined by itself; None if it is alone."""
    global _team
    if not dist.is_available():
        return None
    if not dist.is_initialized():
        if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
            return None
        local = int(os.environ.get("LOCAL_RANK", 0))
        if local < torch.cuda.device_count():
            torch.cuda.set_device(local)  # what the device "cuda" then stands for
        share_cores(int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
        dist.init_process_group("gloo", timeout=_PATIENCE)
        atexit.register(_leave)
        _team = None
    if dist.get_world_size() == 1:
        return None
    _team = _team or Team()
    return _team


@contextmanager
def together() -> Iterator[Team | None]:
    """Do something in all processes of a run, which all end if one fails; alone, it is simply done.

    Only the first one that fails raises the error; the others raise `EndedElsewhere`.
    """
    mine = team()
    if mine is None or mine.is_together:
        yield mine
        return
    with mine.interruptible():
        try:
            mine.is_together = True
            yield mine
        except EndedElsewhere:
            raise
        except Exception as error:
            sentence = str(error) if isinstance(error, FedcefError) else f"{type(error).__name__}: {error}"
            if (first := mine.fail(sentence)) != mine.rank:
                raise EndedElsewhere(sentence, first) from error
            raise
        finally:
            mine.is_together = False


@contextmanager
def _lost_processes_told() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"^\[[^]]*\] *", "", str(error).strip()).partition("\n")[0].partition(". ")[0][:200]
        raise RunError(
            f"A process of the run has ended or cannot be reached ({reason}); see what it said, and go on with the run "
            "by --resume."
        ) from None
