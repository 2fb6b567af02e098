"""How a server finds its way back after a kill, or after damage to its log.

The snapshot is read, and the rounds since are gone through by `end_round`, as they were gone through the first time.

A round's replies are on the disk before its log entry.  So a round that accepted.bin has and the log has not was being
logged when the server was killed, or its entry was lost since.  Either way it ends from its replies, and as it would
have ended: nobody can have seen another end of it.  What the records have and neither file holds is lost, and is said.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedcef.core.errors import RunError
from fedcef.deployment.checks import Unusable
from fedcef.deployment.end_round import AcceptedReply
from fedcef.deployment.messages import Stamp, decode_result
from fedcef.deployment.round_log import RoundLog
from fedcef.runs.reader import Record
from fedcef.wire.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from fedcef.algorithms.algorithm import State
    from fedcef.deployment.server_state import ServerState


class LostRounds(RunError):
    """There were more rounds than the files hold, which end after `end` of them."""

    def __init__(self, sentence: str, end: int) -> None:
        super().__init__(sentence)
        self.end = end


def restore(state: ServerState) -> None:
    """Go to where the snapshot was taken, if there is one."""
    if not state.folder.snapshot.exists():
        return
    try:
        header, tensors = read_checkpoint(state.folder.snapshot)
    except RunError as error:
        raise RunError(f"The snapshot {error}  Put it back from a copy, or begin a new run.") from None
    if not header["round"]:  # a folder that was just made
        return
    parts: dict[str, State] = {"replica": {}, "server": {}, "average": {}, "ledger": {}}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts[part][name] = tensor
    state.replica, state.server, state.average = parts["replica"], parts["server"], parts["average"]
    state.ledger = state.ledger.with_state(parts["ledger"])
    state.round, state.have = header["round"], header["have"]
    state.last = [None if stamp is None else Stamp.from_json(stamp) for stamp in header["last"]]
    state.note = header["note"]


def keep(state: ServerState) -> None:
    """Make durable what was found: a server that was killed may have written it, and not have come to syncing it."""
    for path in (state.folder.log, state.folder.path / "accepted.bin"):
        if path.exists():
            state.disk.keep(path)
    for folder in (state.folder.path, state.folder.path / "sums"):
        state.disk.keep_names(folder)


def opened_log(state: ServerState) -> RoundLog:
    """The round log; one that is damaged is put aside if the replies hold all that is needed of it."""
    path = state.folder.log
    try:
        return RoundLog(path, state.disk, state.round)
    except RunError as error:
        whole = state.replies.end_since(state.round)
        if whole < _recorded(state):
            raise LostRounds(f"{error}  {advice(state.folder.path)}", whole) from None
        state.tell(f"{error}  It is put aside as round_log.damaged; the replies in accepted.bin have what is needed.")
        if path.exists():
            state.disk.replace(path.with_suffix(".damaged"), path.read_bytes())
        state.disk.replace(path, b"")
        return RoundLog(path, state.disk, state.round)


def replay(state: ServerState) -> None:
    """Go through the rounds since the snapshot, and write entries and records that are missing."""
    end, recorded = max(state.log.end, state.replies.end_since(state.round)), _recorded(state)
    if end < recorded:
        raise LostRounds(
            f"{state.folder.rounds} has {recorded} rounds, but {state.folder.log} and accepted.bin have only {end}: "
            f"they are damaged, or of different copies.  {advice(state.folder.path)}",
            end,
        )
    known = {record["round"]: record for record in state.folder.records()}
    complete = list(known) == list(range(end + 1)) and _ends_a_line(state.folder.rounds)
    if state.round not in known:  # where the snapshot was taken can be measured again
        known[state.round] = state.record()
    while state.round < end:
        _play_again(state, was_over=state.round < recorded)
        if state.round not in known:
            known[state.round] = state.record()
    if lost := set(range(end + 1)) - known.keys():
        state.tell(f"{state.folder.rounds} has lost the records of {len(lost)} rounds; the run goes on without them.")
    if not complete:
        _write_records(state, known)


def _play_again(state: ServerState, was_over: bool) -> None:
    """End the next round from its replies."""
    note = state.replies.note(state.round)
    if note is None:
        raise RunError(
            f"Round {state.round} is in {state.folder.log}, but its replies are not in accepted.bin; put that "
            "file back from a copy, or begin a new run."
        )
    accepted = [_accepted(state, reply) for reply in state.replies.of_round(state.round)]
    ended = state.end_round(accepted, state.replies.total_of(state.round) if state.grid is not None else b"")
    if state.round == state.log.end:
        if was_over:
            state.tell(f"{state.folder.log} has lost round {state.round}; it was made again from accepted.bin.")
        state.log.append(ended.frame)
    elif ended.frame != (logged := state.log[state.round]):
        state.tell(f"Round {state.round} is not what was logged; was the run moved to another machine or version?")
        _, replica = state.protocol.follow(state.round, state.replica, logged)
        ended = replace(ended, frame=logged, replica=replica)
    state.adopt(accepted, ended, note)


def _accepted(state: ServerState, reply: bytes) -> AcceptedReply:
    """A reply as it was accepted; an older version may have been less strict."""
    result = decode_result(reply)
    try:
        return AcceptedReply(reply, result, state.checked(result))
    except Unusable as unusable:
        raise RunError(
            f"Round {state.round} cannot be gone through again: client {result.client}'s reply in "
            f"{state.folder.path / 'accepted.bin'} is not one that this version would accept ({unusable.reason}: "
            f"{unusable.detail}).  Go on with the version of fedcef that the run was begun with, or begin a new run."
        ) from None


def _recorded(state: ServerState) -> int:
    """How many rounds are over by the records, which are written last."""
    return max((record["round"] for record in state.folder.records()), default=0)


def _ends_a_line(path: Path) -> bool:
    """Whether the next record begins a line; what a failing disk left behind the last one would spoil it."""
    return path.exists() and path.read_bytes().endswith(b"\n")


def _write_records(state: ServerState, known: dict[int, Record]) -> None:
    lines = "".join(json.dumps(known[round_]) + "\n" for round_ in sorted(known))
    state.disk.replace(state.folder.rounds, lines.encode())


def advice(path: Path) -> str:
    """What to do about a folder that holds less than there was."""
    return (
        "Put the folder back from the newest copy that there is; to go on from what is there, and let clients go back "
        f"to it, run `fedcef deployment recover {path}` and resume."
    )
