"""The server of a run: a state machine without threads, clocks or sockets.

    start_round(now)         orders for the cohort, by client
    receive(who, reply)      a verdict; some come with an order to send again
    can_close(now)           everyone has answered, or the deadline is over and enough have
    close_round(now)         the mean, the log, the next replica; returns the round's record

Whoever drives it passes the time and the bytes.  It may be dropped at any point and recovered from its folder.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from fedcef.core import rng
from fedcef.core.disk import Disk
from fedcef.core.errors import ConfigError, RunError
from fedcef.deployment.admission import ABOUT_ANOTHER, HELPED_BY_ASKING, OpenRound, Verdict, examined, far_off
from fedcef.deployment.checks import Unusable, largest_reply
from fedcef.deployment.identity import RunId
from fedcef.deployment.messages import Order
from fedcef.deployment.protocol import Method
from fedcef.deployment.server_state import Books, Evaluate
from fedcef.problems.problem import Problem
from fedcef.runs.deployment_settings import Terms
from fedcef.runs.folder import Record, RunFolder
from fedcef.runs.settings import Settings, load_settings


class Coordinator:
    def __init__(self, books: Books, terms: Terms) -> None:
        """Use `new` or `recover`."""
        self.books, self.terms, self.method, self.config = books, terms, books.method, books.method.config
        self.cohort_size, self.needed = cohort_sizes(self.method, terms)
        self.limit = terms.max_reply_bytes or largest_reply(books.up_parts)
        self.open: OpenRound | None = None
        self.connected = list(range(self.method.num_clients))
        self.sent, self.received = books.note["sent"], books.note["received"]
        self._between: Counter[str] = Counter()  # refused while no round was open

    @classmethod
    def new(
        cls,
        config: Settings,
        problem: Problem,
        path: Path,
        *,
        terms: Terms = Terms(),
        evaluate: Evaluate | None = None,
        disk: Disk | None = None,
        watch: Callable[[str], None] = lambda sentence: None,
    ) -> Coordinator:
        """Begin a run in a folder of its own."""
        disk, folder, method = disk or Disk(), RunFolder.new(path), Method(config, problem)
        cohort_sizes(method, terms)  # what cannot run leaves no folder behind
        disk.replace(path / "run.json", json.dumps({"run": str(RunId.new(config))}).encode())
        folder.create(config.to_toml())
        return cls(Books(method, folder, disk, evaluate, watch), terms)

    @classmethod
    def recover(
        cls,
        path: Path,
        problem: Problem | None = None,
        *,
        terms: Terms = Terms(),
        evaluate: Evaluate | None = None,
        disk: Disk | None = None,
        watch: Callable[[str], None] = lambda sentence: None,
    ) -> Coordinator:
        """Go on with a run after its last logged round."""
        folder = RunFolder.open(path)
        config = load_settings(str(folder.config))
        method = Method(config, problem if problem is not None else config.build_problem())
        return cls(Books(method, folder, disk or Disk(), evaluate, watch), terms)

    @property
    def run(self) -> RunId:
        return self.books.run

    @property
    def round(self) -> int:
        """How many rounds are over, which is the number of the current one."""
        return self.books.round

    @property
    def finished(self) -> bool:
        return self.round >= self.config.rounds

    def enroll(self, identity: str, number: int | None = None) -> int:
        """A client's number, given to it now if it has none."""
        return self.books.roster.enroll(identity, number)

    # the round

    def start_round(self, now: float, connected: Iterable[int] | None = None) -> dict[int, bytes]:
        """The orders of the next round; of the open one, for those whose reply is still missing.

        The cohort is the simulator's if everyone is connected, and otherwise drawn likewise among those who are.
        Another attempt at an open round may ask others; replies that were accepted stay.
        """
        if self.finished:
            raise RunError(f"All {self.config.rounds} rounds are over.")
        if connected is not None:
            self.connected = sorted(set(connected))
        if self.open is None:
            self.open = OpenRound(now, now)
            self.open.refused, self._between = self._between, Counter()
        else:
            self.open.attempt += 1
            self.open.began = now
        self.open.cohort = set(self._choose(self.round, self.open.attempt)) | self.open.accepted.keys()
        self.open.given_up.clear()
        self.open.again.clear()
        return {client: self._order(client) for client in sorted(self.open.waited_for)}

    def receive(self, identity: str, data: bytes) -> Verdict:
        """Look at a reply; `identity` is the name under which the transport knows its sender."""
        self.received += len(data)
        client = self.books.roster.number(identity)
        try:
            accepted = examined(self.books, self.open, client, data, self.limit)
        except Unusable as unusable:
            return self._refuse(client, identity, unusable)
        assert self.open is not None
        self.open.accepted[accepted.result.client] = accepted
        return Verdict(True)

    def failed(self, identity: str, why: str) -> Verdict:
        """The transport tells that a client could not do its work in the open round."""
        return self._refuse(self.books.roster.number(identity), identity, Unusable("client failed", why))

    def repeat(self, client: int) -> bytes | None:
        """The open round's order once more, for a client that has come back; None if it is not waited for."""
        if self.open is None or client not in self.open.waited_for:
            return None
        self.open.given_up.discard(client)
        return self._order(client)

    def can_close(self, now: float) -> bool:
        """Whether enough replies are there, and no more are waited for."""
        return self._over(now) and self.open is not None and len(self.open.accepted) >= self.needed

    def stalled(self, now: float) -> bool:
        """Whether the round can only go on by another attempt (`start_round`)."""
        return self._over(now) and not self.can_close(now)

    def close_round(self, now: float) -> Record | None:
        """End the round with those who answered; None if too few are left after the last check."""
        if self.open is None or len(self.open.accepted) < self.needed:
            raise RunError(f"Round {self.round} has too few replies to end; {self.needed} are needed.")
        weighted = self.config.weighting == "samples"
        before = self.books.note["largest_median"]
        far, largest_median = far_off(self.open.accepted, self.terms.outlier_factor, before, weighted)
        for client, why in far.items():
            del self.open.accepted[client]
            self._refuse(client, self.books.roster.identity(client) or "", Unusable("outlier", why))
        if len(self.open.accepted) < self.needed:
            self.books.watch(
                f"Round {self.round} cannot end: {len(far)} of its replies are far larger than usual.  If that is so "
                "for all clients, the run diverges; try a smaller local_lr."
            )
            return None
        accepted = [self.open.accepted[client] for client in sorted(self.open.accepted)]
        settled = self.books.settle(accepted)
        note = {
            "listeners": self._choose(self.round + 1),
            "refused": dict(self.open.refused),
            "sent": self.sent,
            "received": self.received,
            "wall_s": self.books.note["wall_s"] + max(0.0, now - self.open.opened),
            "largest_median": largest_median,
        }
        self.books.commit(accepted, settled, note)
        self.open = None
        return self.books.write_down(len(accepted))

    def finish(self) -> Record:
        """Write the model and the summary of a run whose rounds are over."""
        return self.books.finish()

    # what is behind it

    def _choose(self, round_: int, attempt: int = 0) -> list[int]:
        """The cohort of a round, among those connected."""
        if self.cohort_size >= len(self.connected):
            return self.connected
        key = self.method.shared_key(round_, rng.COHORT)
        key = rng.fold(key, attempt) if attempt else key
        return [self.connected[i] for i in rng.subset(key, len(self.connected), self.cohort_size).tolist()]

    def _order(self, client: int) -> bytes:
        """Do this round; with the log entries that the client has not seen, or a snapshot if that is shorter."""
        books, have = self.books, self.books.have[client]
        frames = None if have is None else books.log.since(have)
        if frames is None or sum(map(len, frames)) > books.state_size:
            frames = (books.state_frame,)
        order = Order(books.run, self.round, client, books.last[client], books.replica_hash, frames).encode()
        self.sent += len(order)
        return order

    def _over(self, now: float) -> bool:
        return self.open is not None and (self.open.everyone_answered or now - self.open.began >= self.terms.deadline_s)

    def _refuse(self, client: int | None, identity: str, why: Unusable) -> Verdict:
        """Count and note a reply that is not taken; where asking again can help, do."""
        order = None
        if self.open is None:
            self._between[why.reason] += 1
        else:
            self.open.refused[why.reason] += 1
            if client is not None and client in self.open.waited_for and why.reason not in ABOUT_ANOTHER:
                self.open.again[client] += 1
                if why.reason in HELPED_BY_ASKING and self.open.again[client] <= self.terms.retries:
                    order = self._order(client)
                else:
                    self.open.given_up.add(client)
        self.books.refuse(client, identity, why.reason, why.detail)
        return Verdict(False, why.reason, why.detail, order)


def cohort_sizes(method: Method, terms: Terms) -> tuple[int, int]:
    """How many clients a round asks, and how many it needs."""
    config, n = method.config, method.num_clients
    size = config.clients_per_round or n
    counted_by_samples = config.weighting == "samples" and method.clients_have_state
    everyone = not method.algorithm.partial_participation or counted_by_samples
    needed = n if everyone else terms.min_clients
    if not needed <= size <= n:
        raise ConfigError(
            f"A round of {config.algorithm['name']} needs {needed} clients and asks {size} (clients_per_round) of {n}; "
            "each must be no more than the next."
        )
    return size, needed
