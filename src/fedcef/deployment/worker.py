"""A client: takes an order, does the round, keeps what it proposes, and replies.

    order       → which of its two states the server knows of, and the log entries that its replica missed
    state       committed or pending, by the server's last accepted round; afresh if it has neither
    replica     the entries it missed, through `advance`; its hash must be the server's
    work        `algorithm.local`, with this round's and this client's own keys
    disk        the proposed state and the reply, before the reply is sent

The same order gives the same reply, however often it comes.  A client that is killed at any point is asked again and
goes on from its disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from fedcef.algorithms.algorithm import State
from fedcef.algorithms.statistics import STATISTICS
from fedcef.core.errors import RunError
from fedcef.core.precision import matrix_units
from fedcef.core.threads import single_thread
from fedcef.deployment.checks import hash_of
from fedcef.deployment.client_problem import ClientGradients
from fedcef.deployment.client_store import ClientState, ClientStore
from fedcef.deployment.identity import settings_digest
from fedcef.deployment.messages import Need, Order, Refusal, Result, Stamp, decode_order
from fedcef.deployment.private_noise import PrivateNoise
from fedcef.deployment.protocol import Protocol
from fedcef.deployment.refusals import ahead
from fedcef.deployment.secure_sums import Masks, masked
from fedcef.problems.problem import Problem
from fedcef.runs.settings import Settings
from fedcef.wire import FrameKind, WireError, encode


class Worker:
    """One client of a run."""

    def __init__(
        self,
        settings: Settings,
        problem: Problem,
        store: ClientStore,
        *,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """A client whose number is the store's.

        Args:
            settings: Of the run; the server must have the same.
            problem: With this client alone (`problem_of_client`, `one_client`).
            store: Where its states are kept.
            tell: Called with a sentence about what a person should know.
        """
        self.settings, self.store, self.client, self.tell = settings, store, store.client, tell
        self.protocol = Protocol(settings, problem)
        self.gradients = ClientGradients(settings, problem, self.client)
        self.noise = PrivateNoise(store.folder, settings.rounds, store.disk)
        self._samples = int(problem.sizes.sum())
        self._digest = settings_digest(settings)

    def handle(self, data: bytes, masks: Masks | None = None) -> bytes:
        """The reply to an order; bytes that are no order raise a `MessageError`.  A secure run's is masked."""
        order = decode_order(data)
        objection = self._objection(order, masks)
        if objection:
            return self._refuse(order, objection)
        try:
            state = self.store.load(order.run) or self._earlier(order)
            self._report(order, state)
            if state is not None and state.round > order.round:
                return self._refuse(order, ahead(order.round, state.round))
            replica = self._followed(order, state)
            if isinstance(replica, Need):
                return replica.encode()
            base, own = self._state_to_go_on_with(order, state)
            if state is not None and _is_repeated(order, state, base) and not self.settings.secure:
                return state.reply  # a masked one may be of another session; masks see to it that it is the same again
            return self._work(order, replica, base, own, masks)
        except (WireError, RunError) as error:
            return self._refuse(order, str(error))

    def _earlier(self, order: Order) -> ClientState | None:
        """The state that the server knows of, if the run had another id when it was saved.

        The reply in it was for that id, and a replica of a later round is of rounds that are no more.
        """
        found = None if order.last is None else self.store.with_stamp(order.last)
        if found is None or found.round <= order.round:
            return found and replace(found, reply=b"")
        return replace(found, reply=b"", round=0, replica=self.protocol.start())

    def _objection(self, order: Order, masks: Masks | None) -> str:
        if order.run.settings != self._digest:
            return "The server's settings are not this client's; start it with the same TOML file and version."
        if order.client != self.client:
            return f"The order is for client {order.client}; this is client {self.client}."
        if self.settings.secure and masks is None:
            return "This run's messages are masked, and the order came without what masks are made of."
        return order.run.another_base(self.protocol.base)

    def _refuse(self, order: Order, reason: str) -> bytes:
        self.tell(reason)
        return Refusal(order.run, order.round, self.client, reason).encode()

    def _followed(self, order: Order, state: ClientState | None) -> State | Need:
        """The replica of the order's round, or what is missing for it."""
        seen, replica = (state.round, state.replica) if state else (0, self.protocol.start())
        with torch.no_grad(), single_thread(when=self.protocol.is_small):
            for frame in order.frames:
                seen, replica = self.protocol.follow(seen, replica, frame)
        if seen != order.round:
            return Need(order.run, order.round, self.client, seen)
        if hash_of(replica) != order.replica:
            self.tell(f"The replica of round {order.round} is not the server's; a snapshot is asked for.")
            return Need(order.run, order.round, self.client, None)
        return replica

    def _state_to_go_on_with(self, order: Order, state: ClientState | None) -> tuple[Stamp | None, State]:
        """The client state that the server's sums hold, and its stamp; a new one if it was lost."""
        if state is not None and order.last is not None:
            if order.last == state.stamp:
                return state.stamp, state.pending
            if order.last == state.base:
                return state.base, state.committed
        return None, self.protocol.algorithm.client_init(self.protocol.z0)

    def _work(self, order: Order, replica: State, base: Stamp | None, own: State, masks: Masks | None) -> bytes:
        began = time.perf_counter()
        round_ = self.protocol.rounds.of_client(order.round, self.client)
        algorithm = self.noise.protect(round_.scheduled(self.protocol.algorithm), order, base)
        oracle = self.gradients.in_round(order.round, algorithm.local_steps, replica.get(STATISTICS))
        with torch.no_grad(), matrix_units(self.settings.precision), single_thread(when=self.protocol.is_small):
            up, proposed = algorithm.local(replica, own, oracle, round_.compression)
            if self.settings.secure and masks is not None:
                up = masked(up, masks(bytes(order.run), order.round))
            frame = encode(up, FrameKind.UP, order.round, algorithm.contexts(replica))
        samples, seconds = self._samples, time.perf_counter() - began
        if self.settings.privacy or self.settings.secure:  # neither is needed, and both tell of the data
            samples, seconds = 1, 0.0
        result = Result(order.run, order.round, self.client, base, order.replica, samples, seconds, frame)
        reply = result.encode()
        self.store.save(order.run, ClientState(order.round, replica, base, own, result.stamp, proposed, reply))
        return reply

    def _report(self, order: Order, state: ClientState | None) -> None:
        """Say what a person should know of the state that was found."""
        for sentence in self.store.damaged:
            self.tell(sentence)
        self.store.damaged.clear()
        if state is None and self.store.other_runs(order.run):
            self.tell(f"The states in {self.store.folder} are of other runs; client {self.client} begins afresh.")
        if order.last is not None and (state is None or order.last not in (state.stamp, state.base)):
            self.tell(
                f"Client {self.client} has not its state of round {order.last.round}, which the server accepted; it "
                "goes on with a new one, and the server takes back what it sent before."
            )


def _is_repeated(order: Order, state: ClientState, base: Stamp | None) -> bool:
    """Whether the order was done before, from the same state: then its reply still holds."""
    same = state.round == order.round and state.base == base and hash_of(state.replica) == order.replica
    return bool(state.reply) and same
