"""The ServerApp, with faults: at every step of a round, at every step of writing, and on the way of messages."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from faults.disk import WatchedDisk, no_space
from faults.plan import SERVER, Plan
from fedcef.deployment import Coordinator, coordinator
from fedcef.deployment.messages import Result, decode_reply
from fedcef.flower import run_server
from fedcef.flower.mail import Grid as MessageGrid
from fedcef.flower.mail import NodeInfo
from fedcef.flower.records import bytes_of, number_of
from fedcef.flower.round_loop import RoundLoop
from fedcef.flower.server_app import told
from fedcef.flower.settings import Values
from fedcef.wire import WireError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    plan = Plan.of_this_process()
    with (plan.folder / "server.lock").open("w") as lock:  # held as long as this process lives
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (plan.folder / "starts").open("a") as file:
            file.write(f"{os.getpid()}\n")
        with told():
            serve_with_faults(grid, context.run_id, context.run_config, plan)


def serve_with_faults(grid: MessageGrid, run_id: int, run_config: Values, plan: Plan) -> None:
    trouble = Trouble(plan, run_id)
    with (
        patch.object(coordinator, "PrivateDisk", lambda: WatchedDisk(trouble.at)),
        patch.object(run_server, "Coordinator", type("Faulty", (FaultyCoordinator,), {"trouble": trouble})),
        patch.object(run_server, "RoundLoop", type("Faulty", (FaultyRoundLoop,), {"trouble": trouble})),
    ):
        run_server.run_server(FaultyGrid(grid, trouble), run_config)


class Trouble:
    """The server's own faults, by the point at which they come."""

    def __init__(self, plan: Plan, run_id: int) -> None:
        self.plan, self.run_id = plan, run_id
        self._notes = plan.folder / "history.jsonl"
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        self.round = 1 + max((json.loads(line)["round"] for line in lines if "logged" in line), default=-1)

    def at(self, point: str) -> None:
        """Called wherever the server could be killed, or its disk be full."""
        event = self.plan.next(None, self.round)
        if event is None or event.point != point or event.kind not in SERVER or not self.plan.claim(event, self.round):
            return
        if event.kind == "server's disk is full":
            raise no_space()
        if event.kind == "kill server and SuperLink":
            os.kill(int((self.plan.folder / "superlink.pid").read_text()), signal.SIGKILL)
            os.killpg(0, signal.SIGKILL)  # the SuperExec that started this process, and itself
        os.kill(os.getpid(), signal.SIGKILL)

    def meets(self, client: int, kind: str) -> bool:
        """Whether this is what happens to a client now."""
        event = self.plan.next(client, self.round)
        return event is not None and event.kind == kind and self.plan.claim(event, self.round)

    def note(self, **line) -> None:
        """Write down what a later check needs to know."""
        with self._notes.open("a") as file:
            file.write(json.dumps(line) + "\n")


class FaultyCoordinator(Coordinator):
    trouble: Trouble

    def __init__(self, state, deployment) -> None:
        super().__init__(state, deployment)
        self.trouble.round, self._just_asked, self._commit = state.round, False, state.commit
        state.commit = self._noted_commit
        if state.round and (frames := state.log.since(state.round - 1)):  # recovery may have ended it
            self.trouble.note(round=state.round - 1, logged=hashlib.sha256(frames[0]).hexdigest())
        self.trouble.at("when it has recovered")

    def start_round(self, now, connected=None):
        self.trouble.at("before it asks")
        orders = super().start_round(now, connected)
        self.trouble.plan.announce(self.trouble.run_id, self.round)
        self._just_asked = True
        return orders

    def can_close(self, now):
        if self._just_asked:  # the orders are sent before this is asked for the first time
            self._just_asked = False
            self.trouble.at("after it asked")
        return super().can_close(now)

    def receive(self, identity, data):
        self.trouble.at("before a reply")
        verdict = super().receive(identity, data)
        if verdict.accepted:
            self.trouble.at("after a reply")
        return verdict

    def close_round(self, now, *total):
        self.trouble.at("before the end")
        record = super().close_round(now, *total)
        self.trouble.at("after the end")
        self.trouble.round = self.round
        return record

    def _noted_commit(self, accepted, ended, note, *total):
        """Who is about to take part, by the frame that tells whether they did."""
        frame = hashlib.sha256(ended.frame).hexdigest()
        members = {str(one.client): one.result.base is None for one in accepted}
        round_ = self.round
        self.trouble.note(round=round_, frame=frame, members=members)
        self._commit(accepted, ended, note, *total)
        self.trouble.note(round=round_, logged=frame)
        if note["largest_median"]:
            self.trouble.plan.usual_size_is_known()


class FaultyRoundLoop(RoundLoop):
    trouble: Trouble

    def _send(self, client: int, order: bytes) -> None:
        if self.trouble.meets(client, "drop order"):
            return
        super()._send(client, order)
        if self.trouble.meets(client, "double order"):
            super()._send(client, order)


class FaultyGrid:
    """Flower's grid, on which replies are lost, held back, and come twice."""

    def __init__(self, grid: MessageGrid, trouble: Trouble) -> None:
        self._grid, self._trouble = grid, trouble
        self._clients: dict[int, int] = {}  # by node, as the nodes say
        self._taken: set[str] = set()  # Flower has no second copy of what was lost or is held back here
        self._held: list[tuple[float, Message]] = []

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        now = time.monotonic()
        due = [message for until, message in self._held if until <= now]
        self._held = [held for held in self._held if held[0] > now]
        for message in self._grid.pull_messages([i for i in message_ids if i not in self._taken]):
            due += self._arriving(message, now)
        return due

    def _arriving(self, message: Message, now: float) -> list[Message]:
        client, meets = self._client_of(message), self._trouble.meets
        if client is None:
            return [message]
        if meets(client, "drop reply"):
            self._taken.add(message.metadata.reply_to_message_id)
            return []
        if meets(client, "delay reply"):
            self._taken.add(message.metadata.reply_to_message_id)
            self._held.append((now + self._trouble.plan.deadline_s + 1, message))
            return []
        if meets(client, "slow link"):
            self._taken.add(message.metadata.reply_to_message_id)
            self._held.append((now + self._trouble.plan.deadline_s / 5, message))
            return []
        if meets(client, "kill SuperNode between reply and acknowledgement"):
            _kill_node(self._trouble.plan.folder, client)
        return [message, message] if meets(client, "double reply") else [message]

    def _client_of(self, message: Message) -> int | None:
        """Who sent a result; None for any other message."""
        if message.has_error():
            return None
        node, data = message.metadata.src_node_id, bytes_of(message)
        if (number := number_of(message)) is not None:
            self._clients[node] = number
        with suppress(WireError):
            return self._clients.get(node) if isinstance(decode_reply(data, len(data)), Result) else None
        return None


def _kill_node(folder: Path, client: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(int((folder / f"node-{client}.pid").read_text()), signal.SIGKILL)
