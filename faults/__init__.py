"""The fault suite: a real Flower deployment in which everything goes wrong, by a seeded plan.

    run.py          the command: `python -m faults.run [--seed 1]`, or `make faults`
    plan.py         which fault happens when, and what has happened
    network.py      SuperLink and SuperNodes as processes, and how to start a run
    play.py         a deployment from its first round to its last, whatever dies meanwhile
    client.py, reply.py  the ClientApp with faults         server.py   the ServerApp with faults
    disk.py         a disk that kills or is full           forge.py    what becomes of messages
    checks.py       what must hold                         report.py   the table
    loopback.py     the quick stage, in one process       mutants.py  five bugs that it must catch
    day.py          a day in the life of a deployment with TLS and keys

The package `fedcef` has no hooks for this: the two apps here wrap its own.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # for tests/deployment
