"""Work that clients have been given and not yet delivered, and the clock of a server that does not wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.simulation.network.clock import Clock
from fedcef.wire import FrameKind, decode, encode


@dataclass(frozen=True, eq=False)
class Job:
    """One client at work on one version of the model, from when it was asked until its reply is used.

    What it sends is computed as late as it can be: when its reply might be the next to arrive, and then together with
    that of all others who work on the same version.
    """

    client: int
    version: int
    """The server's steps before it was handed the model."""
    again: int
    """How often this client had been handed this version before."""
    began: float
    worked: float
    """When its reply begins to be sent; inf for a client that never answers."""
    arrives: float = inf
    """When the reply is there, once it is known how long it is."""
    message: Message | None = None
    proposed: State = field(default_factory=dict)
    """The client's own state after it."""


@dataclass(frozen=True, eq=False)
class JobClock(Clock):
    """Between two steps of a server that does not wait."""

    seconds: float
    device: torch.device
    under_way: tuple[Job, ...] = ()
    """In the order in which they were handed out."""
    waiting: tuple[Job, ...] = ()
    """Replies that are in and have not been used, in the order of their arrival."""
    versions: Mapping[int, State] = field(default_factory=dict)
    """Earlier replicas that somebody has yet to work on."""
    handed_out: tuple[int, ...] = ()
    """The clients that were handed the present version, in order."""
    arrivals: int = 0
    """How many replies made the last step."""
    staleness: float = 0.0
    """How many steps they were old, on average."""

    def record(self) -> dict[str, Any]:
        """The time so far, how many replies made the last step, and how old they were."""
        return {"sim_s": round(self.seconds, 6), "arrivals": self.arrivals, "staleness": round(self.staleness, 6)}

    def state(self) -> State:
        """All of it, with the messages as they would be sent."""
        jobs = (*self.under_way, *self.waiting)
        done = [job for job in jobs if job.message is not None]
        frames = [encode(_cpu(job.message), FrameKind.UP, job.version) for job in done if job.message is not None]
        proposed = {f"proposed.{name}": torch.stack([job.proposed[name] for job in done]) for name in _names(done)}
        kept = {f"version.{v}.{name}": t for v, replica in self.versions.items() for name, t in replica.items()}
        return {
            "seconds": torch.tensor([self.seconds, self.staleness], dtype=torch.float64),
            "counts": torch.tensor([len(self.under_way), self.arrivals]),
            "handed_out": torch.tensor(self.handed_out, dtype=torch.int64),
            "jobs": torch.tensor(
                [(job.client, job.version, job.again, job.message is not None) for job in jobs], dtype=torch.int64
            ).reshape(-1, 4),
            "times": torch.tensor([(j.began, j.worked, j.arrives) for j in jobs], dtype=torch.float64).reshape(-1, 3),
            "lengths": torch.tensor([len(frame) for frame in frames], dtype=torch.int64),
            "frames": torch.frombuffer(bytearray(b"".join(frames) or b"\0"), dtype=torch.uint8),
            **proposed,
            **kept,
        }

    def restored(self, state: Mapping[str, Tensor]) -> JobClock:
        """The same clock from a snapshot; messages are decoded, which gives the same numbers."""
        here = {name: tensor.to(self.device) for name, tensor in state.items()}
        data, lengths = bytes(state["frames"].cpu().numpy()), state["lengths"].tolist()
        ends = torch.tensor([0, *lengths]).cumsum(0).tolist()
        frames = iter([data[a:b] for a, b in pairwise(ends)])
        own = {name.removeprefix("proposed."): table for name, table in here.items() if name.startswith("proposed.")}
        jobs, done = [], 0
        times = state["times"].tolist()
        for (client, version, again, has), (began, worked, arrives) in zip(state["jobs"].tolist(), times, strict=True):
            message = {k: p.to(self.device) for k, p in decode(next(frames)).message.items()} if has else None
            proposed = {name: table[done] for name, table in own.items()} if has else {}
            jobs.append(Job(client, version, again, began, worked, arrives, message, proposed))
            done += has
        versions: dict[int, State] = {}
        for name, tensor in here.items():
            if name.startswith("version."):
                _, version, part = name.split(".", 2)
                versions.setdefault(int(version), {})[part] = tensor
        (seconds, staleness), (under_way, arrivals) = state["seconds"].tolist(), state["counts"].tolist()
        return JobClock(
            seconds,
            self.device,
            tuple(jobs[:under_way]),
            tuple(jobs[under_way:]),
            versions,
            tuple(state["handed_out"].tolist()),
            arrivals,
            staleness,
        )


def clients_of(jobs: Iterable[Job], device: torch.device) -> Tensor:
    """The numbers of the clients, in the order of the jobs."""
    return torch.tensor([job.client for job in jobs], dtype=torch.int64, device=device)


def _names(jobs: Sequence[Job]) -> list[str]:
    return list(jobs[0].proposed) if jobs else []


def _cpu(message: Message) -> Message:
    return {name: payload.to("cpu") for name, payload in message.items()}
