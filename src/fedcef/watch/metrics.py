"""Runs as Prometheus reads them: text, a number a line.  Names in it come from run folders and are escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedcef.report.data.records import as_line
from fedcef.watch.attended import attended, is_alive, is_deployment, reasons, seconds
from fedcef.watch.follow import Followed

KIND = "text/plain; version=0.0.4"
_ABOUT = {
    "round": ("gauge", "Rounds that are over."),
    "rounds": ("gauge", "Rounds that were asked for."),
    "finished": ("gauge", "1 if the run has ended."),
    "server_up": ("gauge", "1 if a server works on the run."),
    "last_news_timestamp_seconds": ("gauge", "When something was last written down."),
    "measure": ("gauge", "The last value of what is measured."),
    "bytes_total": ("counter", "Bytes so far, as counted (wire) and as sent by a deployment (transport)."),
    "accepted": ("gauge", "Replies in the last round."),
    "missed": ("gauge", "Clients that were asked in the last round, and whose reply is not in it."),
    "refused_total": ("counter", "Replies that were not taken, by reason."),
    "phase_seconds": ("gauge", "Of the last round: all of it, and what its slowest client worked."),
    "client_last_round": ("gauge", "The last round that the server has of a client; -1 for none."),
    "client_missed": ("gauge", "Rounds in a row that a client missed."),
}


def as_prometheus(runs: Sequence[Followed]) -> str:
    """All runs at once; lines of one name stand together, as the format asks."""
    found: dict[str, list[str]] = {name: [] for name in _ABOUT}
    for run in runs:
        for name, labels, value in _numbers(run):
            pairs = {"run": str(run.path), "label": run.label, **labels}
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in pairs.items())
            found[name].append(f"fedcef_{name}{{{inside}}} {value:.17g}")
    lines = []
    for name, (kind, about) in _ABOUT.items():
        if found[name]:
            lines += [f"# HELP fedcef_{name} {about}", f"# TYPE fedcef_{name} {kind}", *found[name]]
    return "\n".join(lines) + "\n"


def _numbers(run: Followed) -> Iterator[tuple[str, dict[str, str], float]]:
    yield "round", {}, run.round
    yield "rounds", {}, run.rounds
    yield "finished", {}, float(run.over)
    yield "last_news_timestamp_seconds", {}, run.changed
    for name in run.names:
        value = run.last(name)
        if value is None or name == "round":
            continue
        if name.endswith("_bytes"):
            yield "bytes_total", {"count": name.removesuffix("_bytes")}, value
        elif name not in ("accepted", "refused", "work_s"):
            yield "measure", {"name": name}, value
    if not is_deployment(run):
        return
    last = run.records[-1] if run.records else {}
    missed = last.get("missed")
    yield "server_up", {}, float(is_alive(run))
    yield "accepted", {}, run.last("accepted") or 0.0
    yield "missed", {}, float(len(missed)) if isinstance(missed, list) else 0.0
    for reason, count in reasons(run).items():
        yield "refused_total", {"reason": reason}, count
    for phase, taken in seconds(run).items():
        yield "phase_seconds", {"phase": phase}, taken
    for one in attended(run):
        who = {"client": str(one.client)}
        yield "client_last_round", who, -1.0 if one.last_round is None else one.last_round
        yield "client_missed", who, one.missed


def _escaped(text: str) -> str:
    return as_line(text).replace("\\", "\\\\").replace('"', '\\"')
