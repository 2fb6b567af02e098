"""A deployment from its first round to its last: the server is started again whenever it dies, and so are the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from faults.checks import Watch
from faults.network import HERE, Network
from faults.plan import Event, Plan
from fedcef.runs.experiments import load_settings
from fedcef.runs.settings import Settings

STUCK_S = 600.0
"""Longer than any round takes without that anything happens."""


def play(
    folder: Path,
    seed: int,
    settings: Settings,
    events: Sequence[Event],
    tell: Callable[[str], None],
    seconds: float = float("inf"),
    warm: bool = False,
) -> Watch:
    """Play these events in a new folder, or go on in one that was left; what is returned has seen it all.

    After so many seconds everything is killed, and play pauses: `Watch.is_over` tells.
    """
    began, again = time.monotonic(), (folder / "plan.json").exists()
    plan = Plan(folder) if again else Plan.write(folder, seed, settings.deployment.deadline_s, events)
    if plan.events != list(events):
        raise RuntimeError(f"{folder} was begun with another plan; take another folder.")
    watch = Watch(folder, settings, plan)
    if again:
        watch.load()
    changes = f"rounds={settings.rounds} deployment.deadline_s={settings.deployment.deadline_s:g}"
    with Network(folder, settings.num_clients, warm) as network:
        network.begin(set=changes, **{"resume" if again else "out": str(watch.run)})
        while _until_the_server_ends(network, watch, began + seconds, tell) and not watch.is_over:
            watch.server_died()
            tell(f"{_now()} the server died in round {watch.rounds}; {len(plan.happened())} faults so far")
            network.revive()
            network.begin(set=changes, resume=str(watch.run))
        watch.restarts += network.restarts
    watch.seconds += time.monotonic() - began
    if watch.is_over:
        watch.finished()
    else:
        watch.pauses += 1
        watch.server_died(paused=True)
    watch.save()
    return watch


def deployed_settings(rounds: int, deadline_s: float) -> Settings:
    return load_settings(
        str(HERE / "app" / "experiment.toml"), [f"rounds={rounds}", f"deployment.deadline_s={deadline_s:g}"]
    )


def _until_the_server_ends(network: Network, watch: Watch, until: float, tell: Callable[[str], None]) -> bool:
    """Whether it has; False if the time is over before."""
    seen, since = watch.progress(), time.monotonic()
    while network.server_lives():
        if time.monotonic() > until:
            return False
        network.revive()
        time.sleep(0.2)
        if watch.progress() != seen:
            seen, since = watch.progress(), time.monotonic()
            tell(f"{_now()} {seen[0]} rounds, {seen[1]} of {len(watch.plan.events)} faults")
        if time.monotonic() - since > STUCK_S:
            raise RuntimeError(f"Nothing has happened for {STUCK_S:.0f} s; see {network.folder}/logs.")
    return True


def _now() -> str:
    return time.strftime("%H:%M:%S")
