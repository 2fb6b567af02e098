"""What the server knows, in memory and on disk, and how it finds its way back after a kill.

    config.toml     rounds.jsonl     model.safetensors     summary.json     as the simulator writes them
    run.json        the run's id
    clients.jsonl   the clients' numbers
    round_log.bin   the down-messages: a round is over when its entry is here
    accepted.bin    the replies behind those entries, since the snapshot
    snapshot.bin    replica, server's state, ledger and the clients' last rounds, after some round
    sums/           what each client has sent, added up
    refused.jsonl   every reply that was not taken, and why

A round ends in this order, and a kill between any two steps loses nothing that was logged:

    accepted.bin → round_log.bin → memory, rounds.jsonl → every M rounds: snapshot.bin → sums/ → accepted.bin, log cut

Opening a folder recovers what is in it (recovery.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.algorithms.statistics import STATISTICS
from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.deployment import recovery
from fedcef.deployment.accepted_replies import AcceptedReplies, Note
from fedcef.deployment.checks import checked_message, hash_of
from fedcef.deployment.client_sums import ClientSums
from fedcef.deployment.end_round import AcceptedReply, EndedRound, count, end_round
from fedcef.deployment.identity import Roster, read_run_id, settings_digest
from fedcef.deployment.messages import Result, Stamp
from fedcef.deployment.protocol import Protocol, snapshot
from fedcef.deployment.records import record_of, summary_of
from fedcef.deployment.secure_sums import Grid, grid_of, read_total, require_grid
from fedcef.deployment.server_noise import with_own_noise
from fedcef.runs.folder import RunFolder
from fedcef.runs.model_file import encode_model
from fedcef.runs.reader import Record
from fedcef.simulation import snapshots
from fedcef.simulation.averaging import running_mean, started, trained_model, trained_statistics
from fedcef.simulation.ledger import Ledger
from fedcef.wire import Contexts, FrameKind, encode, frame_nbytes
from fedcef.wire.checkpoint import write_checkpoint

Evaluate = Callable[[Tensor, Tensor | None], Mapping[str, float]]
"""Measures of a model, (p,), with its running statistics, (q,), where they are averaged."""


class ServerState:
    """The state of a run's server after its last logged round; opening a folder goes on from what is in it."""

    def __init__(
        self,
        protocol: Protocol,
        folder: RunFolder,
        disk: Disk,
        evaluate: Evaluate | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.protocol, self.folder, self.disk, self.evaluate, self.tell = protocol, folder, disk, evaluate, tell
        n, path = protocol.num_clients, folder.path
        self.run = read_run_id(path / "run.json")
        if self.run.settings != settings_digest(protocol.settings):
            raise RunError(f"{folder.config} is not as the run was begun with; put it back, or begin a new run.")
        if objection := self.run.another_base(protocol.base):
            raise RunError(objection)
        protocol.algorithm = with_own_noise(protocol.algorithm, path / "noise.secret", disk)
        self.roster = Roster(path / "clients.jsonl", n, disk)
        self.up_parts = protocol.up_parts()

        self.round = 0
        self.replica: State = protocol.start()
        self.server: State = {**protocol.algorithm.server_init(protocol.z0), **protocol.aggregator.start(protocol.z0)}
        averaging = protocol.settings.averaging
        self.average: State = started(protocol.z0, self.replica.get(STATISTICS)) if averaging else {}
        self.ledger = Ledger.empty(n, protocol.z0.device)
        self.last: list[Stamp | None] = [None] * n  # the state of each client after its last accepted message
        self.have: list[int | None] = [0] * n  # rounds that each client's replica has seen; None: it takes a snapshot
        self.note: Note = {"sent": 0, "received": 0, "wall_s": 0.0, "largest_median": 0.0}  # of the last round
        self._unwritten = ""
        recovery.keep(self)
        recovery.restore(self)
        self.replies = AcceptedReplies(path / "accepted.bin", disk)
        self.sums = ClientSums(path / "sums", disk, protocol.adds_up or (), protocol.dim)
        self.sums.require([client for client, last in enumerate(self.last) if last is not None], self.replies)
        self.log = recovery.opened_log(self)
        recovery.replay(self)
        self.log.forget(longer_than=self.whole_size)

    @cached_property
    def contexts(self) -> Contexts:
        """What this round's messages are coded with."""
        return self.protocol.algorithm.contexts(self.replica)

    @cached_property
    def grid(self) -> Grid | None:
        """The grid of this round's messages, where they are added up under masks."""
        return grid_of(self.protocol, self.round) if self.protocol.settings.secure else None

    @cached_property
    def replica_hash(self) -> bytes:
        """What a client's replica must have for a hash."""
        return hash_of(self.replica)

    @cached_property
    def whole_size(self) -> int:
        """The length of the replica with all its entries: nobody is sent more."""
        return int(frame_nbytes(snapshots.whole(self.replica)))

    @cached_property
    def snapshot_size(self) -> int:
        """The length of `snapshot_frame`."""
        return int(frame_nbytes(snapshots.snapshot(self.replica)))

    @cached_property
    def snapshot_frame(self) -> bytes:
        """The replica as it is sent to clients that missed much."""
        return snapshot(self.replica, self.round)

    def frames_since(self, have: int | None) -> tuple[bytes, ...]:
        """What brings a replica that has seen so many rounds up to date, by the ledger's rule; None: a snapshot."""
        if self.protocol.algorithm.stands_alone and have is not None and have < self.round:
            return self.log.since(self.round - 1) or (self.snapshot_frame,)  # a log that was lost has no last entry
        missed = None if have is None else self.log.since(have)
        if missed is not None and len(missed) <= 1:
            fits = sum(map(len, missed)) <= self.whole_size
            return missed if fits else (encode(snapshots.whole(self.replica), FrameKind.STATE, self.round),)
        if missed is not None and sum(map(len, missed)) <= self.snapshot_size:
            return missed
        return (self.snapshot_frame,)

    def model(self) -> Tensor:
        """The trained model so far, (p,): the current point, or the running mean."""
        return trained_model(self.average, self.protocol.algorithm.trained(self.replica, self.server))

    def statistics(self) -> Tensor | None:
        """The running statistics that go with that model, (q,), where they are averaged."""
        return trained_statistics(self.average, self.replica)

    def checked(self, result: Result) -> Message:
        """The up-message of a result of this round; anything wrong with it raises Unusable."""
        message = checked_message(result.frame, self.round, self.up_parts, self.protocol.z0.dtype, self.contexts)
        if self.grid is not None:
            require_grid(message, self.grid)
        return message

    # a round ends

    def end_round(self, accepted: Sequence[AcceptedReply], total: bytes = b"") -> EndedRound:
        """The end of the current round with these replies, or with their unmasked total; nothing is changed yet."""
        lost = {
            one.client: self.sums.of(one.client, self.replies, self.round)
            for one in accepted
            if one.result.base is None and self.last[one.client] is not None
        }
        known = (self.protocol, self.round, self.replica, self.server, accepted, lost, self.contexts)
        return end_round(*known, read_total(total, len(accepted)) if total else None)

    def commit(self, accepted: Sequence[AcceptedReply], ended: EndedRound, note: Note, total: bytes = b"") -> None:
        """Make the end of the round durable, and only then true."""
        in_context = bool(self.contexts)
        plain = [encode(one.message, FrameKind.UP, self.round) if in_context else b"" for one in accepted]
        if total:  # single messages are masked, and of no use to anyone
            plain = [total, *[b""] * (len(accepted) - 1)]
        replies = [(one.client, one.reply, frame) for one, frame in zip(accepted, plain, strict=True)]
        self.replies.append(self.round, note, replies)
        self.log.append(ended.frame)
        self.adopt(accepted, ended, note)
        self.log.forget(longer_than=self.whole_size)

    def write_down(self) -> Record:
        """The record of the round that has just ended, and every M rounds a snapshot.

        The round is over whether this succeeds or not: a full disk is told, and stops the next round.
        """
        record = self.record()
        self._unwritten += json.dumps(record) + "\n"
        try:
            self._write_lines()
            if self.protocol.settings.is_kept(self.round):
                self.take_snapshot()
        except RunError as error:
            self.tell(str(error))
        return record

    def take_snapshot(self) -> None:
        """Everything that recovery needs, so that the replies of the rounds before can go."""
        self.disk.keep(self.folder.rounds)
        header = {
            "round": self.round,
            "last": [None if stamp is None else stamp.to_json() for stamp in self.last],
            "have": self.have,
            "note": self.note,
        }
        parts = {
            "replica": self.replica,
            "server": self.server,
            "average": self.average,
            "ledger": self.ledger.state(),
        }
        tensors = {f"{part}/{name}": tensor for part, state in parts.items() for name, tensor in state.items()}
        write_checkpoint(self.folder.snapshot, header, tensors, self.disk)
        self.sums.fold(self.replies, self.round)
        self.replies.clear()
        self.log.cut()

    def refuse(self, client: int | None, identity: str, reason: str, detail: str) -> None:
        """Note a reply that was not taken."""
        line = {"round": self.round, "client": client, "identity": identity[:80], "reason": reason}
        text = json.dumps({**line, "detail": detail[:300]}) + "\n"
        try:
            self.disk.add(self.folder.path / "refused.jsonl", text.encode())
        except RunError as error:
            self.tell(str(error))

    def remember(self, sentence: str) -> None:
        """Note why the server ends, for whoever looks at the folder; nothing depends on it."""
        try:
            self.disk.add(self.folder.notes, json.dumps({"round": self.round, "note": sentence}).encode() + b"\n")
        except RunError as error:
            self.tell(str(error))

    def finish(self, status: str = "finished") -> Record:
        """Write the model and the summary; returns the latter."""
        self._write_lines()
        parameters = self.protocol.state_dict(self.model(), statistics=self.statistics())
        self.disk.replace(self.folder.model, encode_model(parameters, self.round))
        summary = summary_of(self.protocol, self.folder.records()[-1], status)
        self.disk.replace(self.folder.summary, (json.dumps(summary, indent=2) + "\n").encode())
        return summary

    def _write_lines(self) -> None:
        """Records so far, also those that a full disk kept from being written."""
        if self._unwritten:
            self.disk.add(self.folder.rounds, self._unwritten.encode())
            self._unwritten = ""

    def adopt(self, accepted: Sequence[AcceptedReply], ended: EndedRound, note: Note) -> None:
        """Take the end of a round that is on the disk for the state of things."""
        for one in accepted:
            self.last[one.client] = one.result.stamp
            self.have[one.client] = self.round
        alone = self.protocol.algorithm.stands_alone
        self.ledger = count(self.ledger, accepted, ended, note["listeners"], alone)
        self.replica, self.server, self.note = ended.replica, ended.server, note
        round_ = self.protocol.rounds.at(self.round)
        model = round_.scheduled(self.protocol.algorithm).trained(self.replica, self.server)
        self.average = running_mean(
            self.average, model, round_.number, self.protocol.settings.averaging, self.replica.get(STATISTICS)
        )
        self.round += 1
        for known in ("grid", "contexts", "replica_hash", "whole_size", "snapshot_size", "snapshot_frame"):
            self.__dict__.pop(known, None)

    def record(self) -> Record:
        """The line of rounds.jsonl on the state after the last round."""
        due = self.evaluate is not None and self.protocol.settings.is_evaluated(self.round)
        measures = self.evaluate(self.model(), self.statistics()) if self.evaluate is not None and due else {}
        return record_of(self.round, self.ledger, self.note, self.last, measures)
