"""The fault suite: python -m faults.run [--seed 1] [--rounds 42] [--warm] [--keep FOLDER [--for SECONDS]]

A real Flower deployment on this machine, with at least 300 faults, then a thousand and more in one process.
Writes runs/faults.json and a table; exit code 1 if anything did not hold.  The numbers in docs/reliability.md are those
of faults/results.json, which `--out faults/results.json` writes anew.

With `--warm` SuperNodes are started by fedcef.flower.warm: less than half the processor time.

With `--for` play pauses after so long, with exit code 3: all processes are killed, and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from faults.loopback import play_loopback
from faults.plan import make_plan
from faults.play import deployed_settings, play
from faults.report import lines, outcome, quick

ENOUGH = 300
PAUSED = 3
"""The exit code of a run that is to be gone on with."""


def main() -> int:
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that all processes are ended
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fedcef-faults-"))
    settings = deployed_settings(given.rounds, given.deadline)
    events = make_plan(given.seed, settings.rounds, settings.num_clients)
    watch = play(folder / "deployment", given.seed, settings, events, _tell, given.seconds, given.warm)
    if not watch.is_over:
        print(f"Paused after {watch.rounds} rounds, with {len(watch.violations)} violations so far.")
        return PAUSED
    began = time.monotonic()
    loopback = quick(play_loopback(given.seed, given.loopback))
    print(f"In one process: {loopback['events']} faults, {len(loopback['violations'])} violations.", flush=True)
    deployment = outcome(watch)
    if len(events) >= ENOUGH > deployment["events"]:
        deployment["violations"].append(f"Only {deployment['events']} faults have happened.")
    deployment["violations"] += [f"{kind!r} has not happened." for kind in deployment["did not occur"]]
    results = {
        "command": f"python -m faults.run --seed {given.seed} --rounds {given.rounds} --deadline {given.deadline:g}"
        + " --warm" * given.warm,
        "seconds": round(watch.seconds + time.monotonic() - began),
        "loopback": loopback,
        "deployment": deployment,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    print("\n".join(lines(results)))
    wrong = bool(loopback["violations"] or deployment["violations"])
    if not given.keep and not wrong:
        shutil.rmtree(folder)
    elif wrong:
        print(f"Disks and logs are in {folder}.")
    return int(wrong)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=42, help="of the deployed run")
    parser.add_argument("--deadline", type=float, default=30.0, help="of a round, in seconds; more on a slow machine")
    parser.add_argument("--loopback", type=int, default=1000, help="faults of the first stage")
    parser.add_argument("--keep", type=Path, help="keep disks and logs in this folder")
    parser.add_argument("--out", type=Path, default=Path("runs") / "faults.json", help="where the numbers go")
    parser.add_argument("--warm", action="store_true", help="SuperNodes whose messages find everything imported")
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"), help="pause after so long")
    given = parser.parse_args()
    if given.seconds < float("inf") and not given.keep:
        parser.error("--for needs --keep: the folder in which the same command goes on")
    return given


def _tell(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    sys.exit(main())
