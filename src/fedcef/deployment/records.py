"""What a server writes down of a round and of a run, in the words of a simulated one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcef.deployment.accepted_replies import Note
from fedcef.deployment.messages import Stamp
from fedcef.deployment.protocol import Protocol
from fedcef.runs.reader import Record
from fedcef.runs.summary import versions, what_ran
from fedcef.simulation.ledger import Ledger


def record_of(
    round_: int, ledger: Ledger, note: Note, last: Sequence[Stamp | None], measures: Mapping[str, float]
) -> Record:
    """A line of rounds.jsonl: the state after so many rounds, and who took part in the last, by the clients' stamps."""
    refused = note.get("refused", {})
    clients = [client for client, stamp in enumerate(last) if stamp is not None and stamp.round == round_ - 1]
    return {
        "round": round_,
        **ledger.totals(),
        "transport_up_bytes": note["received"],
        "transport_down_bytes": note["sent"],
        "accepted": len(clients),
        "clients": clients,
        "missed": note.get("missed", []),
        "work_s": note.get("work_s", 0.0),
        "refused": sum(refused.values()),
        "reasons": refused,
        **measures,
        "wall_s": round(note["wall_s"], 3),
    }


OF_A_ROUND = ("round", "reasons", "clients", "missed", "work_s")
"""What a record says of its round alone."""


def summary_of(protocol: Protocol, last: Record, status: str = "finished") -> Record:
    """summary.json: how a run ended whose last round left this record."""
    settings = protocol.settings
    return {
        **what_ran(settings, protocol.dim, status),
        "rounds": last["round"],
        **{name: value for name, value in last.items() if name not in OF_A_ROUND},
        **(settings.privacy.spent(settings.rounds) if settings.privacy else {}),  # no client sends more messages
        "versions": versions(),
    }
