"""A deployment in real processes on this machine: one SuperLink, SuperNodes, and `flwr run`.

Everything that they write lies below one folder, their ports are free ones, and none of them outlives the deployment:
Flower detaches some of its processes, so they are found by FLWR_HOME in their environment, which is that folder.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
BIN = Path(sys.executable).parent
PATIENCE_S = 240.0
"""For a process to come up, on a machine that is busy with other tests."""


class Deployment:
    def __init__(self, folder: Path, *, secure: bool = True, app: Path | None = None) -> None:
        self.folder, self.secure = folder, secure
        self.home, self.logs, self.states, self.secrets = (folder / name for name in ("home", "logs", "states", "keys"))
        for path in (self.home, self.logs, self.states):
            path.mkdir(parents=True)
        self.app = folder / "app"
        shutil.copytree(app or EXAMPLE, self.app, ignore=shutil.ignore_patterns("runs", "secure", "__pycache__"))
        self.address = f"127.0.0.1:{free_port()}"
        self._started: list[subprocess.Popen] = []
        self.environment = {
            **os.environ,
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        self._connect("lab", self.address)

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def credentials(self, nodes: int) -> None:
        """Certificates and keys, by the example's own script."""
        script = EXAMPLE / "secure" / "credentials.py"
        servers = ["--server", "localhost", "--server", "127.0.0.1"]
        self.call(sys.executable, str(script), str(self.secrets), *servers, "--nodes", str(nodes))

    def superlink(self, *options: str) -> subprocess.Popen:
        host, port = self.address.split(":")
        keys = self.secrets
        tls = ["--ssl-certfile", f"{keys}/server.crt", "--ssl-keyfile", f"{keys}/server.key"]
        tls += ["--ssl-ca-certfile", f"{keys}/ca.crt", "--enable-supernode-auth"]
        how = tls if self.secure else ["--insecure"]
        process = self.start("superlink", "flower-superlink", *how, "--host", host, "--port", port, *options)
        self.wait_for("the SuperLink's port", lambda: is_open(self.address), process, "superlink")
        return process

    def register(self, node: int) -> None:
        self.call("flwr", "supernode", "register", str(self.secrets / f"node-{node}.pub"), "lab")

    def gate(self, nginx: str) -> str:
        """The example's nginx in front of the SuperLink; returns its address."""
        address, folder = f"127.0.0.1:{free_port()}", self.folder / "gate"
        folder.mkdir()
        server = (EXAMPLE / "secure" / "gate.conf").read_text()
        for old, new in {"9443": address, "127.0.0.1:9500": self.address, "/etc/fedcef": str(self.secrets)}.items():
            server = server.replace(old, new)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        log = f"daemon off; pid {folder}/pid; error_log stderr; events {{}}\n"
        (folder / "nginx.conf").write_text(f"{log}http {{ access_log /dev/stdout;\n{places}{server}}}\n")
        process = self.start("gate", nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr")
        self.wait_for("the gate", lambda: is_open(address), process, "gate")
        return address

    def supernode(
        self,
        client: int,
        *,
        key: int | None = None,
        name: str = "",
        address: str = "",
        warm: str = "",
        config: str = "",
    ) -> subprocess.Popen:
        """A client's SuperNode, with its own key unless another is given; by a gate, or warm with a module."""
        mine = self.secrets / f"node-{client if key is None else key}.key"
        tls = ["--root-certificates", f"{self.secrets}/ca.crt", "--auth-supernode-private-key", str(mine)]
        how = tls if self.secure else ["--insecure"]
        config = f"partition-id={client} state-dir='{self.states}' {config}".strip()
        where = ["--superlink", address or self.address, "--port", str(free_port())]
        before = [sys.executable, "-m", "fedcef.flower.warm", "--import", warm] if warm else []
        return self.start(name or f"node-{client}", *before, "flower-supernode", *how, *where, "--node-config", config)

    def connected(self, *names: str) -> None:
        """Wait until these SuperNodes have been let in."""
        for name in names:
            self.wait_for(f"{name} to be let in", lambda name=name: "SuperNode ID:" in self.log(name), None, name)

    def run(self, *changes: str, **run_config: object) -> subprocess.Popen:
        """`flwr run`, which prints into the log `run`."""
        values = {"set": " ".join(changes), **run_config}
        given = " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
        return self.start("run", "flwr", "run", str(self.app), "lab", "--stream", "--run-config", given)

    # processes

    def start(self, name: str, *command: str) -> subprocess.Popen:
        with (self.logs / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def call(self, *command: str, timeout_s: float = PATIENCE_S, ends_with: int = 0) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == ends_with, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def log(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def wait_for(self, what: str, is_so, process: subprocess.Popen | None = None, name: str = "") -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            log = self.log(name)[-4000:] if name else ""
            assert process is None or process.poll() is None, f"Waiting for {what}, but the process ended:\n{log}"
            assert time.monotonic() < until, f"Waited {PATIENCE_S:.0f} s for {what}:\n{log}"
            time.sleep(0.2)

    def processes(self) -> list[int]:
        """All that belong to this deployment, started by whomever."""
        mark = f"FLWR_HOME={self.home}".encode()
        found = {process.pid for process in self._started if process.poll() is None}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    variables = (entry / "environ").read_bytes().split(b"\0")
                except OSError:  # it has ended, or belongs to somebody else
                    continue
                found |= {int(entry.name)} if mark in variables else set()
        return sorted(found)

    def close(self) -> None:
        """End them all: gently, then not."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            for number in self.processes():
                send(number, kind)
            until = time.monotonic() + 20.0
            while self.processes() and time.monotonic() < until:
                time.sleep(0.1)
        assert not self.processes(), "some processes of a deployment could not be ended"

    def _connect(self, name: str, address: str) -> None:
        how = f'root-certificates = "{self.secrets}/ca.crt"' if self.secure else "insecure = true"
        (self.home / "config.toml").write_text(f'[superlink.{name}]\naddress = "{address}"\n{how}\n')


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        probe.settimeout(2.0)
        return probe.connect_ex((host, int(port))) == 0


def send(number: int, kind: signal.Signals) -> None:
    try:
        os.kill(number, kind)
    except ProcessLookupError:
        return
