"""The report of runs that go on, as a page in a browser of this machine.

    /           a frame around the report, which asks for news and reloads the report when there are any
    /version    what there is to show, as JSON
    /report     the report itself, made when it is asked for and something is new
    /deployment one screen for operators: the clients of deployed runs, who is late, what was refused
    /metrics    the same and more as Prometheus reads it

Only this machine can reach it, and only under the address that was printed: a page from elsewhere that lets its own
name point here (DNS rebinding) is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread

from fedcef.core.amounts import format_bytes
from fedcef.core.errors import FedcefError, RunError
from fedcef.report import load_runs, write_page
from fedcef.report.page.render import make_environment
from fedcef.watch.attended import attended, is_alive, is_deployment, reasons, seconds
from fedcef.watch.follow import Followed
from fedcef.watch.live import Watched
from fedcef.watch.metrics import KIND, as_prometheus
from fedcef.watch.words import format_duration

HOST = "127.0.0.1"
EVERY_MS = 3000
CLOSED = "default-src 'none'; frame-ancestors 'self'"
OUTER = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'none'"
)
STILL = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_TEMPLATES = make_environment("fedcef.watch")


class Site:
    """What is served: always what the folders hold at the moment of asking."""

    def __init__(self, path: Path) -> None:
        self._watched = Watched(path)
        self._lock = Lock()
        self._made: tuple[str, bytes] = ("", b"")
        self.pages = 0
        """How often the report was made."""

    def news(self) -> dict[str, str]:
        """The version of what can be shown, and words about it."""
        with self._lock:
            self._watched.update()
            runs = self._watched.runs
            ended = sum(run.over for run in runs)
            rounds = f"round {runs[0].round} of {runs[0].rounds}" if len(runs) == 1 else f"{ended} of {len(runs)} ended"
            state = runs[0].status if len(runs) == 1 else "finished" if ended == len(runs) else "running"
            return {"version": self._version(), "title": f"{rounds} · fedcef", "state": f"{state}, {rounds}"}

    def report(self) -> bytes:
        """The report; made again only if a run has gone on since."""
        with self._lock:
            self._watched.update()
            version = self._version()
            if self._made[0] != version:
                self._made = (version, self._make())
            return self._made[1]

    def deployment(self) -> bytes:
        """The clients of deployed runs."""
        with self._lock:
            self._watched.update()
            runs = [_deployed(run) for run in self._watched.runs if is_deployment(run)]
        return _TEMPLATES.get_template("deployment.html").render(runs=runs, every_s=EVERY_MS // 1000).encode()

    def metrics(self) -> bytes:
        """All runs in numbers."""
        with self._lock:
            self._watched.update()
            return as_prometheus(self._watched.runs).encode()

    def _version(self) -> str:
        seen = [(str(run.path), run.version) for run in self._watched.runs]
        return sha256(json.dumps(seen).encode()).hexdigest()[:16]

    def _make(self) -> bytes:
        begun = [run.path for run in self._watched.runs if run.records]
        if not begun:
            return _sentence("Waiting for the first round.")
        self.pages += 1
        try:
            with TemporaryDirectory() as folder:
                write_page(load_runs(begun), Path(folder) / "report.html")
                return (Path(folder) / "report.html").read_bytes()
        except FedcefError as error:
            return _sentence(str(error))

    @contextmanager
    def served(self, port: int = 0) -> Iterator[str]:
        """Serve it from a thread of its own; yields the address.  Port 0 is any that is free."""
        try:
            server = ThreadingHTTPServer((HOST, port), type("Asked", (_Asked,), {"site": self}))
        except OSError as error:
            raise RunError(f"Port {port} of {HOST} cannot be used: {error.strerror}; give another --port.") from None
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Asked(BaseHTTPRequestHandler):
    site: Site
    server: ThreadingHTTPServer

    def do_GET(self) -> None:
        """One of the addresses, or a refusal."""
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self._answer(403, "text/plain", b"Ask under the address that fedcef printed.\n", CLOSED)
            return
        match self.path.partition("?")[0]:
            case "/":
                self._answer(200, "text/html", _outer(), OUTER)
            case "/version":
                self._answer(200, "application/json", json.dumps(self.site.news()).encode(), CLOSED)
            case "/report":
                self._answer(200, "text/html", self.site.report(), "frame-ancestors 'self'")
            case "/deployment":
                self._answer(200, "text/html", self.site.deployment(), STILL)
            case "/metrics":
                self._answer(200, KIND, self.site.metrics(), CLOSED)
            case _:
                self._answer(404, "text/plain", b"There is nothing here.\n", CLOSED)

    def _answer(self, status: int, kind: str, content: bytes, policy: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Security-Policy": policy, **HEADERS}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """The terminal shows the runs."""


def _outer() -> bytes:
    return _TEMPLATES.get_template("site.html").render(every_ms=EVERY_MS).encode()


def _deployed(run: Followed) -> dict[str, object]:
    """What the operators' screen says of a run."""
    alive, taken = is_alive(run), seconds(run)
    state = run.status if run.over else "running" if alive else "stopped: no server works on it"
    traffic = {way: format_bytes(run.last(f"transport_{way}_bytes") or 0) for way in ("up", "down")}
    return {
        "label": run.label,
        "state": state,
        "good": alive or run.status == "finished",
        "round": run.round,
        "rounds": run.rounds,
        "silence": format_duration(time.time() - run.changed),
        **traffic,
        "took": format_duration(taken["round"]),
        "work": format_duration(taken["work"]),
        "clients": attended(run),
        "reasons": reasons(run),
    }


def _sentence(text: str) -> bytes:
    return _TEMPLATES.get_template("sentence.html").render(text=text).encode()
