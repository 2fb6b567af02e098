"""How a deployed run ended, in the words of a simulated one."""

from __future__ import annotations

from fedcef.deployment.protocol import Method
from fedcef.runs.folder import Record
from fedcef.runs.loop import versions, what_ran


def summary_of(method: Method, last: Record, status: str = "finished") -> Record:
    """The summary of a run whose last round left this record."""
    config = method.config
    return {
        **what_ran(config, method.dim, status),
        "rounds": last["round"],
        **{name: value for name, value in last.items() if name not in ("round", "reasons")},
        **(config.privacy.spent(config.rounds) if config.privacy else {}),  # no client sends more messages
        "versions": versions(),
    }
