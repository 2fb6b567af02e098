"""The server of a run: a state machine without threads, clocks or sockets.

    start_round(now)         orders for the cohort, by client
    receive(who, reply)      a verdict; some come with an order to send again
    can_close(now)           everyone has answered, or the deadline is over and enough have
    close_round(now)         the mean, the log, the next replica; returns the round's record

Whoever drives it passes the time and the bytes.  It may be dropped at any point and recovered from its folder.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from fedcef.core.disk import Disk, PrivateDisk
from fedcef.core.errors import RunError
from fedcef.deployment.admission import ABOUT_ANOTHER, HELPED_BY_ASKING, OpenRound, Verdict, examine, outliers
from fedcef.deployment.attendance import Attendance
from fedcef.deployment.checks import Unusable, largest_reply
from fedcef.deployment.clients_needed import clients_needed
from fedcef.deployment.identity import RunId
from fedcef.deployment.messages import Order
from fedcef.deployment.protocol import Protocol
from fedcef.deployment.refusals import in_common
from fedcef.deployment.secure_sums import encode_total
from fedcef.deployment.server_state import Evaluate, ServerState
from fedcef.deployment.simulated_only import refuse_simulated_sections
from fedcef.problems.problem import Problem
from fedcef.runs.deployment_settings import DeploymentSettings
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.kinds import refuse_simulated
from fedcef.runs.reader import Record
from fedcef.runs.settings import Settings
from fedcef.secure.primitives import Whole


class Coordinator:
    """The server of one run; made by `new` or `recover`."""

    def __init__(self, state: ServerState, deployment: DeploymentSettings | None = None) -> None:
        self.state, self.protocol, self.settings = state, state.protocol, state.protocol.settings
        self.deployment = deployment or self.settings.deployment
        self.needed = clients_needed(self.protocol, self.deployment)
        self.limit = self.deployment.max_reply_bytes or largest_reply(state.up_parts)
        self.open: OpenRound | None = None
        self.connected = list(range(self.protocol.num_clients))
        self.sent, self.received = state.note["sent"], state.note["received"]
        self._between: Counter[str] = Counter()  # refused while no round was open
        self._attendance = Attendance(0 if self.needed == self.protocol.num_clients else self.deployment.misses)

    @classmethod
    def new(
        cls,
        settings: Settings,
        problem: Problem,
        path: Path,
        *,
        deployment: DeploymentSettings | None = None,
        evaluate: Evaluate | None = None,
        disk: Disk | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> Coordinator:
        """Begin a run in a folder of its own.

        Args:
            settings: Of the run.
            problem: What the server knows of it; it needs no training data (`without_data`).
            path: The folder, which must hold no run.
            deployment: What is demanded of the clients; by default as in the settings.
            evaluate: Measures of the model, recorded in evaluated rounds.
            disk: How files are written.
            tell: Called with a sentence about what a person should know.
        """
        refuse_simulated_sections(settings)
        disk = disk or PrivateDisk()
        folder, protocol = RunFolder.new(path, disk), Protocol(settings, problem)
        clients_needed(protocol, deployment or settings.deployment)  # what cannot run leaves no folder behind
        with folder.locked():  # of two that begin here at the same time, one
            RunFolder.new(path)
            disk.replace(path / "run.json", json.dumps({"run": str(RunId.new(settings, protocol.base))}).encode())
            folder.create(settings.to_toml())
        return cls(ServerState(protocol, folder, disk, evaluate, tell), deployment)

    @classmethod
    def recover(
        cls,
        path: Path,
        problem: Problem | None = None,
        *,
        deployment: DeploymentSettings | None = None,
        evaluate: Evaluate | None = None,
        disk: Disk | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> Coordinator:
        """Go on with a run after its last logged round; the arguments are those of `new`."""
        refuse_simulated(path)
        folder = RunFolder.open(path)
        settings = load_settings(str(folder.config))
        protocol = Protocol(settings, problem if problem is not None else settings.build_problem())
        return cls(ServerState(protocol, folder, disk or PrivateDisk(), evaluate, tell), deployment)

    @property
    def run(self) -> RunId:
        """Which run it is."""
        return self.state.run

    @property
    def round(self) -> int:
        """How many rounds are over, which is the number of the current one."""
        return self.state.round

    @property
    def finished(self) -> bool:
        """Whether all rounds are over."""
        return self.round >= self.settings.rounds

    def enroll(self, identity: str, number: int | None = None) -> int:
        """A client's number, given to it now if it has none; keys that the settings bind have theirs and no other."""
        roster, keys = self.state.roster, self.deployment.keys
        if identity in keys:
            bound = keys.index(identity)
            if number not in (None, bound):
                raise RunError(f"{identity} is client {bound} by deployment.keys; its node says {number}: correct it.")
            if roster.number(identity) != bound:
                roster.assign(bound, identity)
            return bound
        if number is not None and number < len(keys) and keys[number]:
            raise RunError(f"{identity} asks to be client {number}, which has another key by deployment.keys.")
        return roster.enroll(identity, number)

    # the round

    def start_round(self, now: float, connected: Iterable[int] | None = None) -> dict[int, bytes]:
        """The orders of the next round; of the open one, for those whose reply is still missing.

        The cohort is the simulator's if everyone is connected, and otherwise drawn likewise among those who are.
        Another attempt at an open round may ask others; replies that were accepted stay.
        """
        if self.finished:
            raise RunError(f"All {self.settings.rounds} rounds are over.")
        if connected is not None:
            self.connected = sorted(set(connected))
        if self.open is None:
            self.open = OpenRound(now, now)
            self.open.refused, self._between = self._between, Counter()
        else:
            self.open.attempt += 1
            self.open.began = now
            if self.settings.secure:  # a message under the masks of one attempt is of no use in another
                self.open.accepted.clear()
        asked = self._cohort(self.round, self._attendance, self.open.attempt)
        self.open.cohort = {*asked, *self.open.accepted}
        self.open.enough_since = None
        self.open.given_up.clear()
        self.open.why.clear()
        self.open.again.clear()
        return {client: self._order(client) for client in sorted(self.open.waited_for)}

    def receive(self, identity: str, data: bytes) -> Verdict:
        """Look at a reply; `identity` is the name under which the transport knows its sender."""
        self.received += len(data)
        client = self.state.roster.number(identity)
        try:
            accepted = examine(self.state, self.open, client, data, self.limit)
        except Unusable as unusable:
            return self._refuse(client, identity, unusable)
        assert self.open is not None
        self.open.accepted[accepted.client] = accepted
        return Verdict(True)

    def failed(self, identity: str, why: str) -> Verdict:
        """The transport tells that a client could not do its work in the open round."""
        return self._refuse(self.state.roster.number(identity), identity, Unusable("client failed", why))

    def repeat(self, client: int) -> bytes | None:
        """The open round's order once more, for a client that has come back; None if it is not waited for."""
        if self.open is None or client not in self.open.waited_for:
            return None
        self.open.given_up.discard(client)
        return self._order(client)

    def leave_out(self, clients: Iterable[int], now: float) -> None:
        """Wait no longer for those who have no masks in this attempt; the others have the whole deadline."""
        if self.open is not None:
            self.open.given_up.update(clients)
            self.open.began = now

    def can_close(self, now: float) -> bool:
        """Whether enough replies are there, and no more are waited for."""
        return self._over(now) and self.open is not None and len(self.open.accepted) >= self.needed

    def stalled(self, now: float) -> bool:
        """Whether the round can only go on by another attempt (`start_round`)."""
        return self._over(now) and not self.can_close(now)

    def refused_by_all(self) -> str:
        """What all clients say whose reply is missing, if they all refuse the open round for one reason."""
        missing = self.open.waited_for if self.open is not None else set()
        return in_common(self.open.why) if self.open is not None and missing == self.open.why.keys() else ""

    def close_round(self, now: float, total: Whole | None = None) -> Record | None:
        """End the round with those who answered; None if too few are left after the last check.

        In a secure run `total` is the unmasked sum of their numbers.
        """
        if self.open is None or len(self.open.accepted) < self.needed:
            raise RunError(f"Round {self.round} has too few replies to end; {self.needed} are needed.")
        weighted = self.settings.weighting == "samples"
        before = self.state.note["largest_median"]
        factor = 0.0 if self.settings.secure else self.deployment.outlier_factor  # masked, all look alike
        far, largest_median = outliers(self.open.accepted, factor, before, weighted)
        for client, why in far.items():
            del self.open.accepted[client]
            self._refuse(client, self.state.roster.identity(client) or "", Unusable("outlier", why))
        if len(self.open.accepted) < self.needed:
            self.state.tell(
                f"Round {self.round} cannot end: {len(far)} of its replies are far larger than usual.  If that is so "
                "for all clients, the run diverges; try a smaller local_lr."
            )
            return None
        accepted = [self.open.accepted[client] for client in sorted(self.open.accepted)]
        unmasked = b"" if total is None else encode_total(accepted[0].message, total, self.round)
        if self.settings.secure and not unmasked:
            raise RunError(f"Round {self.round} is masked; it ends with the unmasked sum.")
        ended = self.state.end_round(accepted, unmasked)
        attendance = self._attendance.after(self.round, self.open.cohort, self.open.accepted)
        note = {
            "listeners": self._cohort(self.round + 1, attendance),
            "missed": sorted(self.open.waited_for),
            "work_s": round(max(one.result.seconds for one in accepted), 3),
            "refused": dict(self.open.refused),
            "sent": self.sent,
            "received": self.received,
            "wall_s": self.state.note["wall_s"] + max(0.0, now - self.open.opened),
            "largest_median": largest_median,
        }
        self.state.commit(accepted, ended, note, unmasked)
        self.open, self._attendance = None, attendance
        return self.state.write_down()

    def finish(self) -> Record:
        """Write the model and the summary of a run whose rounds are over."""
        return self.state.finish()

    # what is behind it

    def _cohort(self, number: int, attendance: Attendance, attempt: int = 0) -> list[int]:
        """Those who are asked in a round, among the connected; another attempt leaves nobody out."""
        resting = set() if attempt else attendance.resting(number)
        awake = [client for client in self.connected if client not in resting]
        who = awake if len(awake) >= self.needed else self.connected
        return self.protocol.rounds.cohort_among(who, number, attempt)

    def _order(self, client: int) -> bytes:
        """Do this round; with the log entries that the client has not seen, or a snapshot if that is shorter."""
        state = self.state
        frames = state.frames_since(state.have[client])
        order = Order(state.run, self.round, client, state.last[client], state.replica_hash, frames).encode()
        self.sent += len(order)
        return order

    def _over(self, now: float) -> bool:
        if self.open is None:
            return False
        enough = max(self.needed, math.ceil(self.deployment.quorum * len(self.open.cohort)))
        if len(self.open.accepted) >= enough and self.open.enough_since is None:
            self.open.enough_since = now
        since = self.open.enough_since
        grace_is_over = since is not None and now - since >= self.deployment.grace_s
        return self.open.everyone_answered or grace_is_over or now - self.open.began >= self.deployment.deadline_s

    def _refuse(self, client: int | None, identity: str, why: Unusable) -> Verdict:
        """Count and note a reply that is not taken; where asking again can help, do."""
        order = None
        if self.open is None:
            self._between[why.reason] += 1
        else:
            self.open.refused[why.reason] += 1
            if client is not None and client in self.open.waited_for and why.reason not in ABOUT_ANOTHER:
                self.open.again[client] += 1
                in_vain = why.reason == "client failed" and self._attendance.missed(client) > 0
                retries = 0 if in_vain else self.deployment.retries
                if why.reason in HELPED_BY_ASKING and self.open.again[client] <= retries:
                    order = self._order(client)
                else:
                    self.open.given_up.add(client)
                    self.open.why[client] = why.detail or why.reason
        self.state.refuse(client, identity, why.reason, why.detail)
        return Verdict(False, why.reason, why.detail, order)
