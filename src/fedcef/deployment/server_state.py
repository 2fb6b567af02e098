"""What the server knows, in memory and on disk, and how it finds its way back after a kill.

    config.toml     rounds.jsonl     model.safetensors     summary.json     as the simulator writes them
    run.json        the run's id
    clients.json    the clients' numbers
    round_log.bin   the down-messages: a round is over when its entry is here
    accepted.bin    the replies behind those entries, since the snapshot
    snapshot.bin    replica, server's state, ledger and the clients' last rounds, after some round
    sums/           what each client has sent, added up
    refused.jsonl   every reply that was not taken, and why

A round ends in this order, and a kill between any two steps loses nothing that was logged:

    accepted.bin → round_log.bin → memory, rounds.jsonl → every M rounds: snapshot.bin → sums/ → accepted.bin, log cut

Recovery reads the snapshot, goes through the logged rounds since by `settle`, as they were gone through the first time,
and cuts off the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from safetensors.torch import save
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.deployment.accepted_replies import Journal, Note
from fedcef.deployment.checks import checked_message
from fedcef.deployment.client_store import stamped, unstamped
from fedcef.deployment.client_sums import Sums
from fedcef.deployment.end_round import Accepted, Settled, count, settle
from fedcef.deployment.identity import Roster, read_run_id
from fedcef.deployment.messages import Result, Stamp, decode_reply
from fedcef.deployment.protocol import Method, hash_of, snapshot
from fedcef.deployment.round_log import RoundLog
from fedcef.deployment.summary import summary_of
from fedcef.runs.folder import Record, RunFolder
from fedcef.simulation.ledger import Ledger, whole
from fedcef.wire import frame_nbytes
from fedcef.wire.checkpoint import DamagedError, read, seal, unseal

Evaluate = Callable[[Tensor], Mapping[str, float]]
"""Measures of a model, (p,)."""


class Books:
    def __init__(
        self,
        method: Method,
        folder: RunFolder,
        disk: Disk,
        evaluate: Evaluate | None = None,
        watch: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """Open the folder of a run and go on from what is in it."""
        self.method, self.folder, self.disk, self.evaluate, self.watch = method, folder, disk, evaluate, watch
        n, path = method.num_clients, folder.path
        self.run = read_run_id(path / "run.json")
        self.roster = Roster(path / "clients.json", n, disk)
        self.up_parts = method.up_parts()

        self.round = 0
        self.replica: State = method.start()
        self.server: State = method.algorithm.server_init(method.z0)
        self.ledger = Ledger(n, method.z0.device)
        self.last: list[Stamp | None] = [None] * n  # the state of each client after its last accepted message
        self.have: list[int | None] = [0] * n  # rounds that each client's replica has seen; None: it takes a snapshot
        self.note: Note = {"sent": 0, "received": 0, "wall_s": 0.0, "largest_median": 0.0}  # of the last round
        self._unwritten = ""
        self._snapshot_file = path / "snapshot.bin"
        self._restore()

        self.log = RoundLog(folder.log, disk, self.round)
        self.journal = Journal(path / "accepted.bin", disk)
        self.journal.cut(self.log.end)
        self.sums = Sums(path / "sums", disk, method.adds_up or (), method.dim)
        self._replay()

    # a round ends

    def settle(self, accepted: Sequence[Accepted]) -> Settled:
        """The end of the current round with these replies; nothing is changed yet."""
        lost = {
            one.result.client: self.sums.of(one.result.client, self.journal, self.round)
            for one in accepted
            if one.result.base is None and self.last[one.result.client] is not None
        }
        return settle(self.method, self.round, self.replica, self.server, accepted, lost)

    def commit(self, accepted: Sequence[Accepted], settled: Settled, note: Note) -> None:
        """Make the end of the round durable, and only then true."""
        self.journal.append(self.round, note, [(one.result.client, one.reply) for one in accepted])
        self.log.append(settled.frame)
        self._adopt(accepted, settled, note)

    def write_down(self, accepted: int) -> Record:
        """The record of the round that has just ended, and every M rounds a snapshot.

        The round is over whether this succeeds or not: a full disk is told, and stops the next round.
        """
        record = self._record(self.round, accepted)
        config = self.method.config
        every, last = config.snapshot_every, self.round == config.rounds
        self._unwritten += json.dumps(record) + "\n"
        try:
            self._write_lines()
            if every and (last or self.round % every == 0):
                self.take_snapshot()
        except RunError as error:
            self.watch(str(error))
        return record

    def _write_lines(self) -> None:
        """Records so far, also those that a full disk kept from being written."""
        if self._unwritten:
            self.disk.add(self.folder.rounds, self._unwritten.encode())
            self._unwritten = ""

    def take_snapshot(self) -> None:
        """Everything that recovery needs, so that the notes on the rounds before can go."""
        self.disk.keep(self.folder.rounds)
        header = {
            "round": self.round,
            "last": [unstamped(stamp) for stamp in self.last],
            "have": self.have,
            "note": self.note,
        }
        parts = {"replica": self.replica, "server": self.server, "ledger": self.ledger.state()}
        tensors = {f"{part}/{name}": tensor for part, state in parts.items() for name, tensor in state.items()}
        self.disk.replace(self._snapshot_file, seal(header, tensors))
        self.sums.fold(self.journal, self.round)
        self.journal.clear()
        self.log.forget(longer_than=self.state_size, keep=self.round)

    def refuse(self, client: int | None, identity: str, reason: str, detail: str) -> None:
        """Note a reply that was not taken."""
        line = {"round": self.round, "client": client, "identity": identity[:80], "reason": reason}
        text = json.dumps({**line, "detail": detail[:300]}) + "\n"
        try:
            self.disk.add(self.folder.path / "refused.jsonl", text.encode())
        except RunError as error:
            self.watch(str(error))

    @cached_property
    def replica_hash(self) -> bytes:
        return hash_of(self.replica)

    @cached_property
    def state_size(self) -> int:
        """Of `state_frame`."""
        return int(frame_nbytes(whole(self.replica)))

    @cached_property
    def state_frame(self) -> bytes:
        """The replica as it is sent to clients that missed much."""
        return snapshot(self.replica, self.round)

    def _adopt(self, accepted: Sequence[Accepted], settled: Settled, note: Note) -> None:
        for one in accepted:
            self.last[one.result.client] = one.result.stamp
            self.have[one.result.client] = self.round
        count(self.ledger, accepted, settled, note["listeners"])
        self.replica, self.server, self.note = settled.replica, settled.server, note
        self.round += 1
        for known in ("replica_hash", "state_size", "state_frame"):
            self.__dict__.pop(known, None)

    # the record of a run

    def _record(self, round_: int, accepted: int) -> Record:
        config, refused = self.method.config, self.note.get("refused", {})
        due = round_ % config.eval.every == 0 or round_ == config.rounds
        measures = self.evaluate(self.model()) if self.evaluate is not None and due else {}
        return {
            "round": round_,
            **self.ledger.totals(),
            "transport_up_bytes": self.note["received"],
            "transport_down_bytes": self.note["sent"],
            "accepted": accepted,
            "refused": sum(refused.values()),
            "reasons": refused,
            **measures,
            "wall_s": round(self.note["wall_s"], 3),
        }

    def model(self) -> Tensor:
        return self.method.algorithm.model(self.replica)

    def finish(self, status: str = "finished") -> Record:
        """Write the model and the summary."""
        self._write_lines()
        tensors = self.method.layout.unflatten(self.model())
        plain = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        self.disk.replace(self.folder.model, save(plain, {"round": str(self.round)}))
        summary = summary_of(self.method, self.folder.records()[-1], status)
        self.disk.replace(self.folder.summary, (json.dumps(summary, indent=2) + "\n").encode())
        return summary

    # recovery

    def _restore(self) -> None:
        """Go to where the snapshot was taken, if there is one."""
        if not self._snapshot_file.exists():
            return
        try:
            header, tensors = unseal(read(self._snapshot_file))
        except DamagedError as error:
            raise RunError(f"The snapshot {self._snapshot_file} is damaged: {error}") from None
        parts: dict[str, State] = {"replica": {}, "server": {}, "ledger": {}}
        for key, tensor in tensors.items():
            part, _, name = key.partition("/")
            parts[part][name] = tensor
        self.replica, self.server = parts["replica"], parts["server"]
        self.ledger.restore(parts["ledger"])
        self.round, self.have = header["round"], header["have"]
        self.last = [stamped(value) for value in header["last"]]
        self.note = header["note"]

    def _replay(self) -> None:
        """Go through the rounds that were logged since the snapshot, and write records that are missing."""
        known = {record["round"]: record for record in self.folder.records() if record["round"] <= self.log.end}
        complete = list(known) == list(range(self.log.end + 1))
        if self.round == 0 and 0 not in known:
            known[0] = self._record(0, 0)
        while self.round < self.log.end:
            note = self.journal.note(self.round)
            if note is None:
                raise RunError(f"Round {self.round} is in {self.folder.log}, but its replies are not in accepted.bin.")
            accepted = [self._accepted(reply) for reply in self.journal.replies(self.round)]
            settled, logged = self.settle(accepted), self.log[self.round]
            if settled.frame != logged:
                self.watch(
                    f"Round {self.round} is not what was logged; was the run moved to another machine or version?"
                )
                replica = self.method.follow(self.replica, logged)
                settled = Settled(logged, settled.down, replica, settled.server)
            self._adopt(accepted, settled, note)
            if self.round not in known:
                known[self.round] = self._record(self.round, len(accepted))
        if not complete:
            lines = "".join(json.dumps(known[round_]) + "\n" for round_ in sorted(known))
            self.disk.replace(self.folder.rounds, lines.encode())

    def _accepted(self, reply: bytes) -> Accepted:
        result = decode_reply(reply, len(reply))
        assert isinstance(result, Result), "the journal holds accepted results only"
        message = checked_message(result.frame, self.round, self.up_parts, self.method.z0.dtype)
        return Accepted(reply, result, message)
