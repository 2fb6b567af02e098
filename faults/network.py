"""SuperLink and SuperNodes on this machine, each a process with a home of its own, and runs started by `flwr run`."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
CODE = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "src")))
"""Whatever is installed, this checkout is played."""
WARM = (sys.executable, "-m", "fedcef.flower.warm", "--import", "faults.reply")
"""Before a SuperNode's command: its messages find everything imported, which saves most of their processor time."""
READY_S = 180.0
"""How long a process may take to be ready: machines may be busy."""


class Network:
    def __init__(self, folder: Path, clients: int, warm: bool = False) -> None:
        self.folder, self.clients = folder, clients
        self._supernode = [*WARM, "flower-supernode"] if warm else ["flower-supernode"]
        self.port, *self._node_ports = _free_ports(1 + clients)
        self.nodes: dict[int, subprocess.Popen] = {}
        self.superlink: subprocess.Popen | None = None
        self.restarts = 0
        (folder / "logs").mkdir(exist_ok=True)

    def __enter__(self) -> Network:
        self.start_superlink()
        for client in range(self.clients):
            self._start_node(client)
        return self

    def __exit__(self, *what) -> None:
        """Only what was started here is ended: the SuperNodes with their groups, and the SuperLink, whose SuperExec
        follows it."""
        for node in self.nodes.values():
            with suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        if self.superlink is not None:
            self.superlink.kill()
            self.superlink.wait()
        if self.server_lives():
            os.kill(int(self._starts()[-1]), signal.SIGKILL)
        _wait(lambda: not self.server_lives(), 30)

    def start_superlink(self) -> None:
        (self.folder / "superlink").mkdir(exist_ok=True)
        config = f'[superlink.lab]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (self.folder / "superlink" / "config.toml").write_text(config)
        command = ["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.port)]
        self.superlink = self._process("superlink", command)
        (self.folder / "superlink.pid").write_text(str(self.superlink.pid))
        if not _wait(lambda: _listens(self.port), READY_S):
            raise RuntimeError("The SuperLink does not start; see logs/superlink.log.")

    def revive(self) -> None:
        """Start again what was killed."""
        if self.superlink.poll() is not None:
            self.start_superlink()
        for client, node in self.nodes.items():
            if node.poll() is not None:
                self.restarts += 1
                self._start_node(client)

    def _start_node(self, client: int) -> None:
        config = f"partition-id={client} state-dir='{self.folder / 'states'}'"
        command = [*self._supernode, "--insecure", "--superlink", f"127.0.0.1:{self.port}"]
        command += ["--port", str(self._node_ports[client]), "--node-config", config]
        self.nodes[client] = self._process(f"node-{client}", command)
        (self.folder / f"node-{client}.pid").write_text(str(self.nodes[client].pid))

    def _process(self, name: str, command: list[str]) -> subprocess.Popen:
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=self._environment(name),
                start_new_session=True,
            )

    def _environment(self, name: str) -> dict[str, str]:
        (self.folder / name).mkdir(exist_ok=True)
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": CODE,
            "FEDCEF_FAULTS": str(self.folder),
            "FLWR_HOME": str(self.folder / name),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
        }

    # runs

    def begin(self, **run_config: str) -> None:
        """Start a run, or go on with one; returns when its server has begun to work."""
        before = len(self._starts())
        given = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config.items())
        command = ["flwr", "run", str(HERE / "app"), "lab", "--run-config", given]
        done = subprocess.run(
            command, env=self._environment("superlink"), capture_output=True, text=True, timeout=READY_S, check=False
        )
        with (self.folder / "logs" / "flwr_run.log").open("a") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode:
            raise RuntimeError(f"flwr run failed: {done.stderr[-500:]}")
        if not _wait(lambda: len(self._starts()) > before, READY_S):
            raise RuntimeError("The ServerApp does not start; see logs/superlink.log.")

    def server_lives(self) -> bool:
        """Whether a ServerApp holds its lock, which the system takes from it when it dies."""
        path = self.folder / "server.lock"
        if not path.exists():
            return False
        with path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _starts(self) -> list[str]:
        """The process of every server so far."""
        path = self.folder / "starts"
        return path.read_text().splitlines() if path.exists() else []


def _wait(until, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if until():
            return True
        time.sleep(0.1)
    return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
