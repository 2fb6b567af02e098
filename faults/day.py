"""A day in the life of a deployment, with real processes, TLS and keys: python -m faults.day [--keep FOLDER]

    morning     a client's disk is full, then the server's; somebody resumes with other settings, and is refused
    noon        the run goes on; a second server is started on its folder, and is refused; all nodes are restarted
    afternoon   the SuperLink is killed under the run, which ends by itself and goes on with a new one; the server moves
                to another folder, from its backup, whose log has a flipped bit, and gets a new certificate; meanwhile
                one client has lost its disk, and another was put back from an old backup
    evening     the run goes on there, with more rounds than it was begun with, to the end

Nothing may be lost: at the end the replica is, bit for bit, that of a run in which the same clients took part and those
two began afresh, and c is the mean of the c_i.  Every sentence must say what to do, and FEDCEF_ON_END must hear of
every end.  Exit code 1 if anything fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from deployment.setting import equal, replayed
from faults.network import CODE, HERE
from faults.plan import Event, Plan
from fedcef.deployment import ClientStore, Coordinator
from fedcef.runs.experiments import load_settings
from fedcef.runs.reader import RunReader
from flower.deployment import Deployment, send

CLIENTS, ROUNDS, MORE = 3, 10, 12
DEADLINE_S = 60.0
SETTINGS = (
    f"num_clients={CLIENTS} deployment.min_clients={CLIENTS} deployment.deadline_s={DEADLINE_S:g} "
    "deployment.identity=key"
)
DISKS = [
    Event(0, "client's disk is full", 0, 0),
    Event(1, "server's disk is full", 1, None, "append round_log.bin, half written"),
]
STEP_S = 300.0
LOST_S = 60.0
"""Within which a server ends whose SuperLink was killed."""
ENDS = ["failed", "refused", "refused", "failed", "stopped", "finished"]
"""How the servers of a day end: full disk, other settings, second server, SuperLink killed, moved, done."""


class Day(Deployment):
    """The deployment, and what has to be done to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, app=HERE / "app")
        self.plan = Plan.write(folder / "plan", 1, DEADLINE_S, DISKS)
        hook = folder / "hook"
        hook.write_text(f'#!/bin/sh\nprintf "%s %s\\n" "$1" "$3" >> {folder}/ends\n')
        hook.chmod(0o700)
        self.ends = folder / "ends"
        self.environment |= {"FEDCEF_FAULTS": str(self.plan.folder), "PYTHONPATH": CODE, "FEDCEF_ON_END": str(hook)}
        self.folder_of_the_run = folder / "run"
        self.plain = folder / "plain"  # the same app without faults
        shutil.copytree(self.app, self.plain)
        manifest = self.plain / "pyproject.toml"
        manifest.write_text(manifest.read_text().replace("faults.server", "fedcef.flower.server_app")
                            .replace("faults.client", "fedcef.flower.client_app"))  # fmt: skip
        self.violations: list[str] = []
        self.nodes = {}

    def require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.violations.append(otherwise)
            print(f"VIOLATION: {otherwise}", flush=True)

    def flwr(self, name: str, *, app: Path, changes: str = "", **run_config: str):
        """`flwr run`, which prints into a log of its own."""
        given = {"set": f"{SETTINGS} {changes}".strip(), **run_config}
        config = " ".join(f'{key}="{value}"' for key, value in given.items())
        return self.start(name, "flwr", "run", str(app), "lab", "--stream", "--run-config", config)

    def rounds(self) -> int:
        return max((record["round"] for record in RunReader(self.folder_of_the_run).records), default=0)

    def until(self, rounds: int, name: str) -> None:
        self.wait_for(f"round {rounds}", lambda: self.rounds() >= rounds, None, name)

    def until_said(self, sentence: str, name: str) -> None:
        """Wait for a sentence; neither a traceback nor an unhandled exception may be there."""
        self.wait_for(f"{sentence!r}", lambda: sentence in self.log(name), None, name)
        self.require("Traceback" not in self.log(name), f"There is a traceback in the log of {name}.")
        self.require("unhandled exception" not in self.log(name), f"{name} is called an unhandled exception.")

    def servers(self) -> list[int]:
        """The processes of ServerApps."""
        return [number for number in self.processes() if b"flwr-serverapp" in command_of(number)]

    def stop_server(self) -> None:
        """SIGTERM to the ServerApp, and wait until its lock is free."""
        for number in self.servers():
            send(number, signal.SIGTERM)
        self.wait_for("the server to stop", lambda: not (self.folder_of_the_run / "lock").exists())

    def kill_superlink(self, superlink: subprocess.Popen) -> float:
        """SIGKILL, in the middle of a round; the seconds that the ServerApp takes to end by itself."""
        superlink.kill()
        superlink.wait()
        began = time.monotonic()
        self.require(bool(self.servers()), "The ServerApp was not there when its SuperLink was killed.")
        self.wait_for("the server to end", lambda: not self.servers())
        return time.monotonic() - began

    def stop(self, *clients: int) -> None:
        for client in clients:
            os.killpg(self.nodes[client].pid, signal.SIGTERM)
        for client in clients:
            self.nodes[client].wait(STEP_S)

    def restart(self, client: int) -> None:
        self.stop(client)
        self.nodes[client] = self.supernode(client, name=f"node-{client}")


def command_of(number: int) -> bytes:
    """How a process was started; nothing if it has ended."""
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""


def flip_a_bit(path: Path) -> None:
    """In the last entry of a log."""
    data = bytearray(path.read_bytes())
    data[-9] ^= 4
    path.write_bytes(data)


def play(folder: Path) -> list[str]:
    began = time.monotonic()

    def tell(sentence: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {sentence}", flush=True)

    with Day(folder) as day:
        day.credentials(nodes=CLIENTS)
        superlink = day.superlink("--database", str(folder / "superlink.db"))
        tell("the SuperLink is there")
        for client in range(CLIENTS):
            day.register(client)
            day.nodes[client] = day.supernode(client)
        checks = ("fedcef", "doctor", "deployment", "--secrets", str(day.secrets))
        tell(day.call(*checks).strip().splitlines()[-1])

        day.flwr("morning", app=day.app, changes=f"rounds={ROUNDS}", out=str(day.folder_of_the_run))
        day.until_said("No space left on device", "morning")
        day.until_said(f"Go on with the same command and --run-config 'resume=\"{day.folder_of_the_run}", "morning")
        tell(f"disks were full: {len(day.plan.happened())} times; {day.rounds()} rounds are over")
        day.flwr("changed", app=day.plain, changes=f"rounds={ROUNDS} local_lr=0.5", resume=str(day.folder_of_the_run))
        day.until_said("was begun with other settings: local_lr was 0.002 and is 0.5", "changed")
        tell("other settings are refused, with what differs")

        day.flwr("noon", app=day.plain, changes=f"rounds={ROUNDS}", resume=str(day.folder_of_the_run))
        day.until(3, "noon")
        day.flwr("second", app=day.plain, changes=f"rounds={ROUNDS}", resume=str(day.folder_of_the_run))
        day.until_said("is being worked on by process", "second")
        tell("a second server is refused")
        shutil.copytree(day.states / "client-2", folder / "old-state")
        for client in range(CLIENTS):
            day.restart(client)
            day.until(min(day.rounds() + 1, 7), "noon")
            tell(f"client {client} was restarted; {day.rounds()} rounds are over")

        took = day.kill_superlink(superlink)
        day.require(took < LOST_S, f"The server took {took:.0f} s to end without its SuperLink.")
        status = day.call("fedcef", "deployment", "status", str(day.folder_of_the_run), ends_with=1)
        for said in (status, day.ends.read_text().splitlines()[-1]):
            day.require("The SuperLink of this run has ended" in said, f"It is not said why the server ended: {said}")
            day.require(f'resume="{day.folder_of_the_run}' in said, f"It is not said how to go on: {said}")
        tell(f"the SuperLink was killed after {day.rounds()} rounds; the server took {took:.1f} s to end, and says why")
        superlink = day.superlink("--database", str(folder / "superlink.db"))
        day.flwr("afternoon", app=day.plain, changes=f"rounds={ROUNDS}", resume=str(day.folder_of_the_run))
        day.until(min(day.rounds() + 1, 8), "afternoon")
        tell(f"a new SuperLink, and the same nodes; {day.rounds()} rounds are over")
        day.stop_server()
        over = day.rounds()

        shutil.copytree(day.folder_of_the_run, folder / "moved")
        shutil.rmtree(day.folder_of_the_run)
        day.folder_of_the_run = folder / "moved"
        flip_a_bit(day.folder_of_the_run / "round_log.bin")
        day.stop(*range(CLIENTS))
        shutil.rmtree(day.states / "client-1")
        shutil.rmtree(day.states / "client-2")
        shutil.copytree(folder / "old-state", day.states / "client-2")
        certificate = (day.secrets / "server.crt").read_bytes()
        (day.secrets / "server.crt").unlink()
        day.credentials(nodes=CLIENTS)
        day.require((day.secrets / "server.crt").read_bytes() != certificate, "The certificate is the old one.")
        superlink.terminate()
        superlink.wait(STEP_S)
        day.superlink("--database", str(folder / "superlink.db"))
        for client in range(CLIENTS):
            day.nodes[client] = day.supernode(client, name=f"node-{client}")
        tell(f"the server has moved after {over} rounds, with a new certificate; two clients have lost their states")

        day.flwr("evening", app=day.plain, changes=f"rounds={MORE}", resume=str(day.folder_of_the_run))
        day.until_said("Finished", "evening")
        day.require("round_log.bin" in day.log("evening"), "The server does not say that its log was damaged.")
        tell(day.call("fedcef", "deployment", "status", str(day.folder_of_the_run)).strip())
        ends = [line.split()[0] for line in day.ends.read_text().splitlines()]
        day.require(ends == ENDS, f"FEDCEF_ON_END has heard of {ends} instead of {ENDS}.")
        judge(day, over)
    return day.violations


def judge(day: Day, over: int) -> None:
    """Compare the end with a run of the same cohorts, in which clients 1 and 2 begin afresh after the move."""
    settings = load_settings(str(HERE / "app" / "experiment.toml"), [*SETTINGS.split(), f"rounds={MORE}"])
    server = Coordinator.recover(day.folder_of_the_run, tell=day.violations.append)
    records = RunReader(day.folder_of_the_run).records
    day.require([record["round"] for record in records] == list(range(MORE + 1)), "A round is missing.")
    history = [
        {c: round_ == over and c in (1, 2) for c in record["clients"]} for round_, record in enumerate(records[1:])
    ]
    reference = replayed(settings, history)
    day.require(equal(server.state.replica, reference.replica), "The replica is not that of a run without faults.")
    stores = [ClientStore(day.states / f"client-{client}", client).load(server.run) for client in range(CLIENTS)]
    c_i = torch.stack([store.pending["c_i"] for store in stores])
    c = server.state.server.get("c", server.state.replica.get("c"))
    gap = float((c - c_i.mean(0)).norm() / c.norm())
    day.require(gap < 1e-5, f"c is {gap:g} off the mean of the c_i.")
    print(f"{MORE} rounds; ‖c − mean c_i‖ / ‖c‖ = {gap:.1e}; the replica is the reference's, bit for bit", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, help="keep disks and logs in this folder")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fedcef-day-"))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that all processes are ended
    try:
        violations = play(folder / "day")
    except AssertionError as error:
        violations = [str(error)]
    print("\n".join(violations) or "Nothing was lost.")
    if not given.keep and not violations:
        shutil.rmtree(folder)
    elif violations:
        print(f"Disks and logs are in {folder}.")
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
