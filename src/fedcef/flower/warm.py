"""A SuperNode whose messages find torch and fedcef already imported.

    python -m fedcef.flower.warm flower-supernode --superlink lab.example.org:9443 …

Flower starts `flwr-clientapp` for every message, by that name, and each such process imports everything anew: two
seconds of CPU, most of them torch's.  This command makes a process that has imported it once, puts a `flwr-clientapp`
of its own first in the PATH, and becomes the SuperNode.  That small script hands its arguments to the waiting process,
which forks: the copy is Flower's own `flwr-clientapp`, and loads the app anew, so that nothing of one message is seen
by the next.  Where the waiting process is gone, the script starts Flower's as ever.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedcef.core.errors import ConfigError

PROGRAM = "flwr-clientapp"
"""What Flower starts for a message."""
IMPORTED = (
    "flwr.supernode.cli.flwr_clientapp",
    "numpy",
    "torch",
    "fedcef.flower.two_lines.client",
    "fedcef.flower.run_client",
)
"""What a message of ours needs, and what is imported while nothing waits for it."""
LONGEST_CALL = 1 << 20
"""Bytes of a command line and an environment."""

_SCRIPT = """#!{python} -IS
import json, os, signal, socket, sys
try:
    line = socket.socket(socket.AF_UNIX)
    line.connect({address!r})
    call = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(line, [len(call).to_bytes(4, "little")], [0, 1, 2])
    line.sendall(call)
    number = int.from_bytes(line.recv(4), "little")
    assert number
except (OSError, AssertionError):
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
for kind in (signal.SIGINT, signal.SIGTERM):
    signal.signal(kind, lambda kind, frame: os.kill(number, kind))
status = line.recv(1)
sys.exit(status[0] if status else 1)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Become the command, with a process beside it that has imported what its messages need."""
    parser = argparse.ArgumentParser(
        prog="python -m fedcef.flower.warm", description="A SuperNode whose messages find everything imported."
    )
    parser.add_argument("--import", dest="more", action="append", default=[], metavar="MODULE", help="one more of them")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="flower-supernode and its options")
    given = parser.parse_args(arguments)
    command, program = given.command, shutil.which(PROGRAM)
    try:
        if not command or shutil.which(command[0]) is None:
            raise ConfigError("Name the command to run; for example: python -m fedcef.flower.warm flower-supernode …")
        if program is None or not hasattr(os, "fork"):
            raise ConfigError(
                f"There is no {PROGRAM} in the PATH, or no fork on this system; start {command[0]} itself."
            )
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="fedcef-warm-"))  # readable by this user alone
    waiting, supernode = opened(folder, program), os.getpid()
    if os.fork():
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        os.execvp(command[0], command)
    return served(waiting, folder, [*IMPORTED, *given.more], supernode, _flower)


def opened(folder: Path, program: str) -> socket.socket:
    """The script in the folder, and the socket by which it calls; who calls early waits."""
    waiting = socket.socket(socket.AF_UNIX)
    waiting.bind(str(folder / "socket"))
    waiting.listen(64)
    script = folder / PROGRAM
    script.write_text(_SCRIPT.format(python=sys.executable, address=str(folder / "socket"), program=program))
    script.chmod(0o700)
    return waiting


def served(waiting: socket.socket, folder: Path, names: Sequence[str], parent: int, work: Callable[[], Any]) -> int:
    """Import, and fork for every call as long as the parent lives; returns in the parent's stead or in a copy."""
    sys.path[0] = str(Path(sys.executable).parent)  # as for a script there; not the folder where this was started
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:  # an app may do without it
            print(f"{name} is not installed, and not imported beforehand.", file=sys.stderr)
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.SIG_IGN)  # it ends when the SuperNode has ended, whose last message may need it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how copies ended
    waiting.settimeout(1.0)
    while os.getppid() == parent:
        try:
            line, _ = waiting.accept()
        except TimeoutError:
            continue
        if threading.active_count() == 1 and os.fork() == 0:
            waiting.close()
            return _copied(line, work)
        line.close()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _copied(line: socket.socket, work: Callable[[], Any]) -> int:
    """One message: with the script's arguments, folder, environment and output."""
    for kind in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(kind, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    line.settimeout(10.0)
    length, files, _, _ = socket.recv_fds(line, 4, 3)
    call, size = b"", min(int.from_bytes(length, "little"), LONGEST_CALL)
    while len(call) < size and (more := line.recv(size - len(call))):
        call += more
    sys.argv, folder, environment = json.loads(call)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # as in a new process: not as the copy before
    line.settimeout(None)
    line.sendall(os.getpid().to_bytes(4, "little"))
    status = 1
    try:
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        line.sendall(bytes([status & 0xFF]))
        line.close()
    return status


def _flower() -> None:
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    flwr_clientapp()


if __name__ == "__main__":
    sys.exit(main())
