"""A client's reply to an order, and the fault that comes with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from unittest.mock import patch

from flwr.app import Context
from torch import Tensor

from faults.disk import WatchedDisk, no_space
from faults.forge import cut, flipped, forged
from faults.plan import FORGED, SAVES, Event, Plan
from fedcef.algorithms.algorithm import Oracle
from fedcef.deployment import client_store
from fedcef.deployment.client_problem import ClientGradients
from fedcef.deployment.messages import Result, decode_order, decode_reply
from fedcef.flower import run_client
from fedcef.flower.settings import client_number

NOTHING = Event(-1, "", 0, None)


def reply_to(order: bytes, context: Context) -> bytes:
    plan, client, round_ = Plan.of_this_process(), client_number(context.node_config), decode_order(order).round
    event = plan.next(client, round_) if plan.is_open(context.run_id, round_) else None
    return Trouble(plan, event or NOTHING, round_).reply(order, context)


class Trouble:
    """One order and the client's next fault; if that is one of its reply on the way, nothing happens here."""

    def __init__(self, plan: Plan, event: Event, round_: int) -> None:
        self.plan, self.event, self.kind, self.round = plan, event, event.kind, round_
        self.random = event.random(plan.seed)

    def reply(self, order: bytes, context: Context) -> bytes:
        if self.kind == "kill SuperNode before its work":
            self._kill()
        if self.kind == "kill ClientApp alone" and self._happens():
            os.kill(os.getpid(), signal.SIGKILL)
        order = self._damaged("order", order)
        run_client._worker.cache_clear()  # a process that serves many orders has a worker with another fault
        with (
            patch.object(client_store, "PrivateDisk", lambda: WatchedDisk(self._saving)),
            patch.object(ClientGradients, "in_round", self._watched(ClientGradients.in_round)),
        ):
            reply = run_client.handle(order, context.run_config, context.node_config)
        result = decode_reply(reply, len(reply))
        return self._sent(result, reply) if isinstance(result, Result) else reply

    def _sent(self, result: Result, reply: bytes) -> bytes:
        """What leaves the client instead of its result, if anything does."""
        if self.kind == "kill SuperNode after its work":
            self._kill()
        if self.kind == "client is too slow" and self._happens():
            time.sleep(self.plan.deadline_s + 2)
        if self.kind in FORGED and self._happens():
            return forged(self.kind, result, self.random, self.plan.clients)
        return self._damaged("reply", reply)

    def _damaged(self, what: str, data: bytes) -> bytes:
        if self.kind == f"cut {what}" and self._happens():
            return cut(data, self.random)
        if self.kind == f"flip {what}" and self._happens():
            return flipped(data, self.random)
        return data

    def _saving(self, point: str) -> None:
        """Called at every step of writing the client's state."""
        if self.kind == "kill SuperNode while it saves" and point == f"replace state, {self.event.point}":
            self._kill()
        full_at = f"replace state, {SAVES[self.event.id % 3]}"
        if self.kind == "client's disk is full" and point == full_at and self._happens():
            raise no_space()

    def _watched(self, in_round: Callable[..., Oracle]) -> Callable[..., Oracle]:
        """Gradients, one of which may be the last."""

        def watched(*given: object) -> Oracle:
            oracle = in_round(*given)

            def gradient(x: Tensor, k: int) -> Tensor:
                if self.kind == "kill SuperNode during its work" and k == self.event.id % 3:
                    self._kill()
                return oracle(x, k)

            return gradient

        return watched

    def _happens(self) -> bool:
        return self.plan.claim(self.event, self.round)

    def _kill(self) -> None:
        """SuperNode, SuperExec and this process: the SuperNode was started as the leader of their group."""
        if self._happens():
            os.killpg(0, signal.SIGKILL)
