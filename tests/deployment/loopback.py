"""Server and clients in one process, talking in bytes through a transport that fails on purpose.

Time is a number.  A kill drops the object and opens its folder again; a `FaultyDisk` does so at any step of writing.
"""

import heapq
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from fedcef.core.errors import RunError
from fedcef.deployment import ClientStore, Coordinator, DeploymentSettings, Worker, one_client, without_data
from fedcef.deployment.going_back import go_back
from fedcef.deployment.messages import decode_result
from fedcef.wire import WireError

from .fault_kinds import ALL, UP
from .faulty_disk import FaultyDisk, Killed
from .forged import forged_reply


def put_back(folder, copy):
    """Put a copy in a folder's place; if there is none yet, make one."""
    if there := copy.exists():
        shutil.rmtree(folder)
        copy.rename(folder)
    else:
        shutil.copytree(folder, copy)
    return there


class Loopback:
    def __init__(self, settings, path: Path, *, deployment=None, seed=0, chance=0.0, kinds=ALL, evaluate=None):
        self.settings, self.path, self.chance, self.kinds, self.evaluate = settings, path, chance, kinds, evaluate
        self.deployment = deployment or DeploymentSettings(
            deadline_s=50, min_clients=min(3, settings.clients_per_round or 3)
        )
        self.random = np.random.default_rng(seed)
        self.problem = settings.build_problem()
        self.now, self.sequence = 0.0, 0
        self.queue: list = []
        self.faults, self.outcomes = Counter(), Counter()
        self.history: list[dict[int, bool]] = []
        self.records: list = []
        self.notes: list[str] = []
        self.server_disk, self.disks = FaultyDisk(), [FaultyDisk() for _ in range(settings.num_clients)]
        self.server = self._opened() if (path / "server").exists() else self._begun()
        self.workers = [self.open_worker(client) for client in range(settings.num_clients)]

    def name(self, client):
        return f"site-{client}"

    def folder(self, client):
        return self.path / f"client-{client}"

    def open_worker(self, client):
        store = ClientStore(self.folder(client), client, self.disks[client])
        return Worker(self.settings, one_client(self.problem, client), store, tell=self.notes.append)

    def _begun(self):
        server = Coordinator.new(
            self.settings,
            without_data(self.problem),
            self.path / "server",
            deployment=self.deployment,
            disk=self.server_disk,
            evaluate=self.evaluate,
        )
        for client in range(self.settings.num_clients):
            server.enroll(self.name(client), client)
        return server

    def _opened(self):
        return Coordinator.recover(
            self.path / "server",
            without_data(self.problem),
            deployment=self.deployment,
            disk=self.server_disk,
            evaluate=self.evaluate,
            tell=self.notes.append,
        )

    def reopen_server(self):
        self.server_disk.disarm()
        before = self.server.round
        self.server = self._opened()
        assert self.server.round >= before, "a logged round was lost"
        replies = self.server.state.replies
        if len(self.history) < self.server.round and replies.note(self.server.round - 1):  # recovery has ended it
            results = [decode_result(reply) for reply in replies.of_round(self.server.round - 1)]
            self._note({result.client: result.base is None for result in results})

    # the run

    def run(self, rounds=None):
        while not self.server.finished and (rounds is None or self.server.round < rounds):
            self.play()
        return self

    def play(self):
        """One round, however many attempts it takes."""
        target, attempts = self.server.round + 1, 0
        while self.server.round < target:
            attempts += 1
            assert attempts < 300, f"round {target - 1} does not end"
            self._send_all(self.server.start_round(self.now))
            while self.server.open is not None and not self._over() and self.server.round < target:
                self._deliver_next()
                if self._hit("kill server between steps"):
                    self.reopen_server()
            if self.server.open is not None and self.server.can_close(self.now):
                self._close()

    def _over(self):
        return self.server.can_close(self.now) or self.server.stalled(self.now)

    def _close(self):
        open_, before = self.server.open, self.server.round
        if self._hit("kill server while it saves"):
            self.server_disk.arm("kill", int(self.random.integers(0, 14)))
        elif self._hit("server's disk is full"):
            self.server_disk.arm("full", int(self.random.integers(0, 6)))
        elif self._hit("power failure at server"):
            self.server_disk.arm("power", int(self.random.integers(0, 14)))
        try:
            record = self.server.close_round(self.now)
            if record:
                self.records.append(record)
        except Killed:
            self.reopen_server()
        except RunError:
            assert self.server.round == before
        self.server_disk.disarm()
        if self.server.round > before:
            if len(self.history) < self.server.round:
                self._note({client: one.result.base is None for client, one in open_.accepted.items()})
            self._trouble_at_server()

    def _note(self, members):
        """Who took part in a round, and who of them began afresh, having taken part before."""
        self.history.append({c: new and any(c in before for before in self.history) for c, new in members.items()})

    def _trouble_at_server(self):
        """Damage between two rounds, which only a server that is started again would see."""
        log, folder, copy = (self.path / name for name in ("server/round_log.bin", "server", "copy"))
        if log.stat().st_size and self._hit("damage server's log"):
            log.write_bytes(self.flipped(log.read_bytes()))
            self.reopen_server()
        elif self._hit("empty server's log"):
            log.write_bytes(b"")
            self.reopen_server()
        elif self._hit("server's state from a copy") and put_back(folder, copy):
            self.server_disk = FaultyDisk()
            self.history = self.history[: go_back(folder)]
            self.server = self._opened()

    # the transport

    def _send_all(self, orders):
        for client, order in orders.items():
            self._send("order", client, order)

    def _send(self, kind, client, data, delay=1.0):
        self.sequence += 1
        heapq.heappush(self.queue, (self.now + delay, self.sequence, kind, client, data))

    def _deliver_next(self):
        """The next message, if it comes before the deadline."""
        deadline = self.server.open.began + self.deployment.deadline_s
        if not self.queue or self.queue[0][0] > deadline:
            self.now = max(self.now, deadline)
            return
        self.now, _, kind, client, data = heapq.heappop(self.queue)
        if kind == "order":
            self._order_arrives(client, data)
        else:
            self._reply_arrives(client, data)

    def _order_arrives(self, client, data):
        if self._hit("drop order"):
            return
        if self._hit("double order"):
            self._send("order", client, data, 3.0)
        elif self._hit("slow link"):
            self._send("order", client, data, 20.0)
            return
        elif self._hit("delay order"):
            self._send("order", client, data, 70.0)
            return
        elif self._hit("cut order"):
            data = data[: int(self.random.integers(len(data)))]
        elif self._hit("flip order"):
            data = self.flipped(data)
        self._trouble_at_client(client)
        try:
            reply = self.workers[client].handle(data)
        except WireError:
            self.outcomes["unreadable order"] += 1
            return
        except Killed:
            self.workers[client] = self.open_worker(client)
            return
        finally:
            self.disks[client].disarm()
        if self._hit("kill client before it replies"):
            self.workers[client] = self.open_worker(client)
            return
        self._send("reply", client, reply)

    def _trouble_at_client(self, client):
        states = sorted(self.folder(client).glob("*.state"), key=lambda p: p.stat().st_mtime_ns)
        copy = self.path / f"copy-{client}"
        if self._hit("kill client before its work"):
            self.workers[client] = self.open_worker(client)
        elif self._hit("kill client while it saves"):
            self.disks[client].arm("kill", int(self.random.integers(0, 4)))
        elif self._hit("client's disk is full"):
            self.disks[client].arm("full", int(self.random.integers(0, 3)))
        elif states and self._hit("damage client's newest state"):
            states[-1].write_bytes(self.flipped(states[-1].read_bytes()))
            self.workers[client] = self.open_worker(client)
        elif states and self._hit("lose client's state"):
            shutil.rmtree(self.folder(client))
            self.workers[client] = self.open_worker(client)
        elif states and self._hit("client with another run's state"):
            for path in states:
                path.rename(path.with_name(f"{'0' * 32}-{path.name[-7]}.state"))
            self.workers[client] = self.open_worker(client)
        elif self._hit("power failure at client"):
            self.disks[client].arm("power", int(self.random.integers(0, 4)))
        elif states and self._hit("client's state from a copy") and put_back(self.folder(client), copy):
            self.workers[client] = self.open_worker(client)

    def _reply_arrives(self, client, data):
        if self._hit("drop reply"):
            return
        if self._hit("delay reply"):
            self._send("reply", client, data, 70.0)
            return
        if self._hit("double reply"):
            self._receive(client, data)
        for kind in UP[3:]:
            if self._hit(kind):
                client_name, data = self.forged(kind, client, data)
                self._receive(client, data, client_name)
                return
        self._receive(client, data)

    def _receive(self, client, data, name=None):
        verdict = self.server.receive(name or self.name(client), data)
        self.outcomes[verdict.reason or "accepted"] += 1
        if verdict.order is not None:
            self._send("order", client, verdict.order)

    def forged(self, kind, client, data):
        """What an enemy or a fault makes of a reply, and who it says it is from."""
        if kind == "cut reply":
            return None, data[: int(self.random.integers(len(data)))]
        if kind == "flip reply":
            return None, self.flipped(data)
        another = self.name((client + 1) % self.settings.num_clients)
        if name := {"reply by a stranger": "nobody", "reply as another client": another}.get(kind):
            return name, data
        return None, forged_reply(kind, data, self.server.state.contexts)

    def flipped(self, data):
        changed = bytearray(data)
        for at in self.random.integers(len(changed), size=3):
            changed[at] ^= 1 << int(self.random.integers(8))
        return bytes(changed)

    def _hit(self, kind):
        if kind not in self.kinds or self.random.random() >= self.chance:
            return False
        self.faults[kind] += 1
        return True

    # what came of it

    def client_states(self):
        """Every client's true state: the one that its next order would make it go on with."""
        states = []
        for client in range(self.settings.num_clients):
            store = ClientStore(self.folder(client), client)
            state, last = store.load(self.server.run), self.server.state.last[client]
            init = self.workers[client].protocol.algorithm.client_init(self.problem.z0)
            if last is None:
                states.append(init)
            elif state is not None and last in (state.stamp, state.base):
                states.append(state.pending if last == state.stamp else state.committed)
            else:
                states.append(None)  # lost, and to be accounted for in its next round
        return states

    def table(self):
        states = self.client_states()
        return {name: torch.stack([state[name] for state in states]) for name in states[0]}
