"""What a server writes down of a round and of a run, in the words of a simulated one."""

from __future__ import annotations

from collections.abc import Mapping

from fedcef.deployment.accepted_replies import Note
from fedcef.deployment.protocol import Protocol
from fedcef.runs.reader import Record
from fedcef.runs.summary import versions, what_ran
from fedcef.simulation.ledger import Ledger


def record_of(round_: int, ledger: Ledger, note: Note, accepted: int, measures: Mapping[str, float]) -> Record:
    """A line of rounds.jsonl: the state after so many rounds, and who took part in the last."""
    refused = note.get("refused", {})
    return {
        "round": round_,
        **ledger.totals(),
        "transport_up_bytes": note["received"],
        "transport_down_bytes": note["sent"],
        "accepted": accepted,
        "refused": sum(refused.values()),
        "reasons": refused,
        **measures,
        "wall_s": round(note["wall_s"], 3),
    }


def summary_of(protocol: Protocol, last: Record, status: str = "finished") -> Record:
    """summary.json: how a run ended whose last round left this record."""
    settings = protocol.settings
    return {
        **what_ran(settings, protocol.dim, status),
        "rounds": last["round"],
        **{name: value for name, value in last.items() if name not in ("round", "reasons")},
        **(settings.privacy.spent(settings.rounds) if settings.privacy else {}),  # no client sends more messages
        "versions": versions(),
    }
