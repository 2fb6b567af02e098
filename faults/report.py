"""The outcome as a table and as numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from faults.checks import Watch
from faults.loopback import Stage
from faults.plan import KINDS, SERVER


def outcome(watch: Watch) -> dict[str, Any]:
    """What came of the deployed stage."""
    happened = watch.plan.happened()
    counts = Counter(event.kind for event in happened)
    never = [kind for kind in {event.kind for event in watch.plan.events} if not counts[kind]]
    return {
        "events": len(happened),
        "rounds": watch.settings.rounds,
        "kinds": {kind: _kind(kind, watch, happened) for kind in KINDS if counts[kind]},
        "points": sorted({event.point for event in happened if event.client is None}),
        "refused": dict(sorted(watch.refused().items())),
        "server deaths": watch.deaths,
        "SuperNode restarts": watch.restarts,
        "pauses": watch.pauses,
        "largest control gap": max(watch.gaps, default=0.0),
        "control gaps measured": len(watch.gaps),
        "clients per round": dict(sorted(Counter(len(members) for members in watch.history).items())),
        "equal to the simulator, bit for bit": watch.bits,
        "did not occur": never,
        "violations": watch.violations,
    }


def _kind(kind: str, watch: Watch, happened: dict) -> dict[str, int]:
    """How often a fault happened, and how often its round ended with the client, or was over when the server died."""
    events = [(event, what["round"]) for event, what in happened.items() if event.kind == kind]
    if kind in SERVER:
        logged = sum(watch.recoveries.get(event, 0) > round_ for event, round_ in events)
        return {"events": len(events), "round was logged": logged}
    there = sum(event.client in watch.history[round_] for event, round_ in events)
    return {"events": len(events), "client took part": there}


def quick(stage: Stage) -> dict[str, Any]:
    return {
        "events": sum(stage.faults.values()),
        "runs": stage.runs,
        "rounds": stage.rounds,
        "kinds": dict(sorted(stage.faults.items())),
        "refused": dict(sorted(stage.refused.items())),
        "largest control gap": max(stage.gaps, default=0.0),
        "violations": stage.violations,
    }


def lines(results: dict[str, Any]) -> list[str]:
    """The table of the deployed stage, and what was checked."""
    deployed, loopback = results["deployment"], results["loopback"]
    out = [f"{'fault':50} {'events':>6}  all the same"]
    for kind, found in deployed["kinds"].items():
        events, (name, number) = found["events"], list(found.items())[1]
        out.append(f"{kind:50} {events:6}  {name} {number} times")
    refused = ", ".join(f"{reason} {n}" for reason, n in deployed["refused"].items())
    bits = ", ".join(name for name, same in deployed["equal to the simulator, bit for bit"].items() if same)
    out += [
        f"{'together':50} {deployed['events']:6}",
        "",
        f"refused: {refused}",
        f"{deployed['rounds']} rounds; the server died {deployed['server deaths']} times, SuperNodes were started "
        f"again {deployed['SuperNode restarts']} times",
        f"‖c − mean c_i‖ / ‖c‖: at most {deployed['largest control gap']:.1e}, in {deployed['control gaps measured']} "
        "measurements after recovery and at the end",
        f"equal to the simulator with the accepted cohorts, bit for bit: {bits or 'nothing'}",
        f"in one process: {loopback['events']} faults in {loopback['rounds']} rounds of {loopback['runs']} "
        f"runs; largest gap {loopback['largest control gap']:.1e}",
    ]
    wrong = loopback["violations"] + deployed["violations"]
    return [*out, *(f"VIOLATION: {sentence}" for sentence in wrong), "all checks hold" if not wrong else "NOT ALL HOLD"]
