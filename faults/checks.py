"""What must hold after every recovery of the server, and at the end.

* No logged round is lost or changed: the log is read whenever the server dies, and a round's frame never changes.
* c is the mean of the c_i, from the server's disk and the clients' disks.
* The final replica and all clients' states are, bit for bit, those of a simulator's run with the accepted cohorts.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import load_file

from deployment.setting import equal, simulation
from faults.plan import Event, Plan
from fedcef.deployment import ClientStore, Coordinator
from fedcef.runs.settings import Settings
from fedcef.wire import decode, split

ROUNDING = 1e-5
REASONS = {
    "cut order": "client failed",
    "cut reply": "unreadable",
    "flip reply": "unreadable",
    "NaN in reply": "invalid frame",
    "huge numbers in reply": "too large",
    "large norm in reply": "outlier",
    "client's disk is full": "client refused",
    "delay reply": "late",
    "reply of another run": "another run",
    "reply of another round": "another round",
    "reply as another client": "another client's",
}
"""Why replies must have been refused after some such faults; one alone may be lost with a server that is killed."""
SOME = 3
KEPT = ("violations", "frames", "gaps", "deaths", "restarts", "pauses", "seconds")
NEVER = ("another state", "another replica", "lost state", "other vectors")
"""Reasons to refuse a reply for which no fault here gives cause."""


class Watch:
    """Looks at the disks of a deployment from outside."""

    def __init__(self, folder: Path, settings: Settings, plan: Plan) -> None:
        self.folder, self.settings, self.plan, self.run = folder, settings, plan, folder / "run"
        self.violations: list[str] = []
        self.frames: dict[int, str] = {}
        self.gaps: list[float] = []
        self.deaths = self.restarts = self.pauses = 0
        self.seconds = 0.0
        self.recoveries: dict[Event, int] = {}
        self.history: list[dict[int, bool]] = []
        self.bits: dict[str, bool] = {}

    @property
    def rounds(self) -> int:
        """How many rounds are logged, as far as was seen."""
        return 1 + max(self.frames, default=-1)

    @property
    def is_over(self) -> bool:
        """Whether the last round is."""
        return (self.run / "summary.json").exists()

    def save(self) -> None:
        """Keep what was seen, for whoever goes on with the folder."""
        kept = {name: getattr(self, name) for name in KEPT}
        recoveries = {event.id: round_ for event, round_ in self.recoveries.items()}
        (self.folder / "watch.json").write_text(json.dumps({**kept, "recoveries": recoveries}))

    def load(self) -> None:
        """Go on with what was seen before a pause."""
        kept = json.loads((self.folder / "watch.json").read_text("utf-8"))
        by_id = {str(event.id): event for event in self.plan.events}
        self.recoveries = {by_id[number]: round_ for number, round_ in kept.pop("recoveries").items()}
        self.frames = {int(round_): digest for round_, digest in kept.pop("frames").items()}
        self.__dict__.update(kept)

    def progress(self) -> tuple[int, int]:
        records = self.run / "rounds.jsonl"
        over = max(records.read_bytes().count(b"\n") - 1, 0) if records.exists() else 0
        return over, sum(1 for _ in (self.folder / "fired").iterdir())

    def server_died(self, paused: bool = False) -> None:
        """Look at what it left, before it is started again; where play pauses, no fault need have killed it."""
        self.deaths += not paused
        known = self.rounds
        self._read_log()
        server = self._recovered()
        ended = server.round - self.rounds  # one if its replies were kept, and its entry was being written
        self._require(ended in (0, 1), f"{self.rounds} rounds are logged, {server.round} are recovered.")
        self._require(self.rounds >= known, f"Round {known - 1} was logged and is not there any more.")
        causes = [event for event in self.plan.happened() if event.client is None and event not in self.recoveries]
        expected = (0, 1) if paused else (1,)
        self._require(len(causes) in expected, f"The server died in round {server.round}, by {len(causes)} faults.")
        self.recoveries |= dict.fromkeys(causes, server.round)
        self._measure(server)

    def finished(self) -> None:
        self._read_log()
        server = self._recovered()
        self._require(self.rounds == server.round == self.settings.rounds, f"{self.rounds} rounds are logged.")
        records = [json.loads(line) for line in (self.run / "rounds.jsonl").read_text().splitlines()]
        numbers = [record["round"] for record in records]
        self._require(numbers == list(range(self.settings.rounds + 1)), f"The records are of rounds {numbers}.")
        self._measure(server)
        self.history = self._accepted()
        counts = [len(members) for members in self.history]
        self._require([r["accepted"] for r in records[1:]] == counts, "The records count other clients than took part.")
        self._compare(server)
        self._judge_refusals()

    def _judge_refusals(self) -> None:
        refused, happened = self.refused(), Counter(event.kind for event in self.plan.happened())
        for kind, reason in REASONS.items():
            seen = happened[kind] < SOME or refused[reason]
            self._require(bool(seen), f"After {happened[kind]} times {kind!r} no reply was refused as {reason!r}.")
        for reason in NEVER:
            self._require(reason not in refused, f"A reply was refused for {reason!r}.")

    def refused(self) -> Counter[str]:
        """Why replies were not taken, and how many."""
        path = self.run / "refused.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return Counter(json.loads(line)["reason"] for line in lines if line.endswith("}"))

    def _require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.violations.append(otherwise)

    def _read_log(self) -> None:
        frames, _ = split((self.run / "round_log.bin").read_bytes())
        found = [(decode(frame).round, hashlib.sha256(frame).hexdigest()) for frame in frames]
        noted = [(line["round"], line["logged"]) for line in self._notes() if "logged" in line]
        for round_, digest in noted + found:
            before = self.frames.setdefault(round_, digest)
            self._require(before == digest, f"Round {round_} was logged, and is another one now.")
        rounds = [round_ for round_, _ in found]
        self._require(
            rounds == list(range(rounds[0], rounds[0] + len(rounds))) if rounds else True, "The log has gaps."
        )
        self._require(sorted(self.frames) == list(range(len(self.frames))), "A round is missing.")

    def _recovered(self) -> Coordinator:
        """The server as it would come back, from a copy of its folder."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.run, copy)
        return Coordinator.recover(copy, deployment=self.settings.deployment, tell=self.violations.append)

    def _measure(self, server: Coordinator) -> None:
        """How far c is from the mean of the c_i, of c's size."""
        states = self._client_states(server)
        c = server.state.server.get("c", server.state.replica.get("c"))
        if any(state is None for state in states):
            self.violations.append(f"After {server.round} rounds a client has lost its state.")
        elif server.round:
            gap = float((c - torch.stack([state["c_i"] for state in states]).mean(0)).norm() / c.norm())
            self.gaps.append(gap)
            self._require(gap < ROUNDING, f"After {server.round} rounds c is {gap:g} off the mean of the c_i.")

    def _client_states(self, server: Coordinator) -> list:
        """Every client's true state: the one that its next order would make it go on with."""
        states = []
        for client, last in enumerate(server.state.last):
            state = ClientStore(self.folder / "states" / f"client-{client}", client).load(server.run)
            if last is None:
                states.append(server.protocol.algorithm.client_init(server.protocol.z0))
            elif state is not None and last in (state.stamp, state.base):
                states.append(state.pending if last == state.stamp else state.committed)
            else:
                states.append(None)
        return states

    def _notes(self) -> list[dict]:
        path = self.folder / "history.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _accepted(self) -> list[dict[int, bool]]:
        """Who took part in each round: of all attempts to end it, the one whose frame is in the log."""
        attempts = {(line["round"], line["frame"]): line["members"] for line in self._notes() if "members" in line}
        history = []
        for round_, digest in sorted(self.frames.items()):
            members = {int(client): new for client, new in attempts[round_, digest].items()}
            seen = {client for before in history for client in before}
            again = [client for client, new in members.items() if new and client in seen]
            self._require(not again, f"Clients {again} began afresh in round {round_}; they had lost nothing.")
            history.append(members)
        return history

    def _compare(self, server: Coordinator) -> None:
        """With the simulator, told who took part."""
        cohorts = [torch.tensor(sorted(members)) for members in self.history]
        simulated = simulation(self.settings)
        simulated.engine.rounds.cohort = lambda round_: cohorts[min(int(round_), len(cohorts) - 1)]
        for _ in cohorts:
            simulated.step()
        states = [
            state if state is not None else {name: table[i] * torch.nan for name, table in simulated.clients.items()}
            for i, state in enumerate(self._client_states(server))
        ]
        model = self.settings.build_problem().layout.unflatten(simulated.model())
        self.bits = {
            "replica": equal(server.state.replica, simulated.replica),
            "server's state": equal(server.state.server, simulated.server),
            "model.safetensors": equal(load_file(self.run / "model.safetensors"), dict(model)),
            "clients' states": all(
                equal(state, {name: table[i] for name, table in simulated.clients.items()})
                for i, state in enumerate(states)
            ),
        }
        for name, same in self.bits.items():
            self._require(same, f"The {name} is not the simulator's.")
