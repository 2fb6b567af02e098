"""A whole deployment in one process, to be killed: begins or goes on in a folder, and runs to the end.

Every line on standard input starts another process, by a fork after the imports; its number comes on standard output,
and its exit code when it has ended.
"""

import os
import sys
from pathlib import Path

from fedcef.deployment import ClientStore, Coordinator, Worker, one_client, without_data
from fedcef.runs.experiments import load_settings


def main(file: str, path: Path) -> None:
    settings = load_settings(file)
    problem = settings.build_problem()
    if (path / "server" / "config.toml").exists():
        server = Coordinator.recover(path / "server", without_data(problem))
    else:
        server = Coordinator.new(settings, without_data(problem), path / "server")
    workers = [
        Worker(settings, one_client(problem, client), ClientStore(path / f"client-{client}", client))
        for client in range(settings.num_clients)
    ]
    for client in range(settings.num_clients):
        server.enroll(f"site-{client}", client)
    while not server.finished:
        for client, order in server.start_round(0.0).items():
            verdict = server.receive(f"site-{client}", workers[client].handle(order))
            assert verdict.accepted, verdict
        server.close_round(0.0)
    server.finish()


if __name__ == "__main__":
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            main(sys.argv[1], Path(sys.argv[2]))
            sys.exit()
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
