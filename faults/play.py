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


def play(folder: Path, seed: int, settings: Settings, events: Sequence[Event], tell: Callable[[str], None]) -> Watch:
    """Play these events in a new folder; what is returned has seen it all."""
    plan = Plan.write(folder, seed, settings.deployment.deadline_s, events)
    watch = Watch(folder, settings, plan)
    changes = f"rounds={settings.rounds} deployment.deadline_s={settings.deployment.deadline_s:g}"
    with Network(folder, settings.num_clients) as network:
        network.begin(set=changes, out=str(watch.run))
        while True:
            _until_the_server_ends(network, watch, tell)
            if (watch.run / "summary.json").exists():
                break
            watch.server_died()
            tell(f"{_now()} the server died in round {watch.rounds}; {len(plan.happened())} faults so far")
            network.revive()
            network.begin(set=changes, resume=str(watch.run))
        watch.restarts = network.restarts
    watch.finished()
    return watch


def deployed_settings(rounds: int, deadline_s: float) -> Settings:
    return load_settings(
        str(HERE / "app" / "experiment.toml"), [f"rounds={rounds}", f"deployment.deadline_s={deadline_s:g}"]
    )


def _until_the_server_ends(network: Network, watch: Watch, tell: Callable[[str], None]) -> None:
    seen, since = watch.progress(), time.monotonic()
    while network.server_lives():
        network.revive()
        time.sleep(0.2)
        if watch.progress() != seen:
            seen, since = watch.progress(), time.monotonic()
            tell(f"{_now()} {seen[0]} rounds, {seen[1]} of {len(watch.plan.events)} faults")
        if time.monotonic() - since > STUCK_S:
            raise RuntimeError(f"Nothing has happened for {STUCK_S:.0f} s; see {network.folder}/logs.")


def _now() -> str:
    return time.strftime("%H:%M:%S")
