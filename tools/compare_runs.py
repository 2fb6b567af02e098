"""Compare the runs of two source trees, bit for bit: what a change that must not change results has to pass.

    python tools/compare_runs.py --before ../old/src [--after src] [--only experiments] [--cache FOLDER]

Every case of `compare_cases.py` runs once with each tree, in processes that see only that tree.  Compared are all
records (but for wall_s), summaries (but for wall_s and versions), settings, facts, notes, tables of comparisons, and
every tensor of models and snapshots.  MNIST and CIFAR-10 must be in the cache (`fedcef data get mnist`); only their
first samples are used.  With --cache the results of the first tree are kept: the next comparison runs only the second.

Methods and experiments that the first tree does not have are only seen to run, or to refuse, in the second.
Differences that the CHANGELOG announces are counted and named, and are no reason to fail.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from compare_cases import Case, cases
from compare_play import NOT_THERE, Result

HERE = Path(__file__).parent
ASKED_FOR = {
    r"compressors/randk: files/config/compressor/scaled is gone": "an older name of `unbiased`, read but not written",
    r".*_catch_up(_bytes)? is new.*": "what clients get because they were away has a column of its own",
    r".*config/algorithm/(participation|own_part|index_code) is new.*": "options of FedCEF that there were not",
    r".*config/algorithm/(control|metric\w*) is new.*": "options of FedCEF that there were not",
    r"experiments/frontier_cifar10: files/([^/]*context/\w+ is new|summary was).*": "variants that there were not",
    r".*cohort.*(wire|paper)_down(_bytes)? was .*": "a snapshot goes to those who come back without its zeros",
}
"""Differences that the CHANGELOG announces, and why; the whole line is matched."""


def main() -> None:
    """Compare, print what was compared, and leave with 1 if anything differs."""
    options = _options()
    chosen = {key: case for key, case in cases().items() if not options.only or _matches(key, options.only)}
    with tempfile.TemporaryDirectory() as folder:
        place: Path = options.keep or Path(folder)
        before = results(options.before, chosen, options.jobs, place / "before", options.cache)
        after = results(options.after, chosen, options.jobs, place / "after", None)
    sys.exit(report(before, after))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", required=True, type=Path, help="source tree whose results are right")
    parser.add_argument("--after", default=HERE.parent / "src", type=Path, help="source tree to judge")
    parser.add_argument("--only", nargs="*", help="beginnings of the keys of cases, or words in them")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--cache", type=Path, help="a folder to keep the results of --before in")
    parser.add_argument("--keep", type=Path, help="a new folder to leave all run folders in")
    return parser.parse_args()


def _matches(key: str, words: list[str]) -> bool:
    return any(word in key for word in words)


# one tree


def results(tree: Path, chosen: dict[str, Case], jobs: int, place: Path, cache: Path | None) -> dict[str, Result]:
    """What every case gives with a tree, from the cache where it is there."""
    if not (tree / "fedcef" / "__init__.py").is_file():
        sys.exit(f"{tree} holds no package fedcef; give the folder that does, for example src.")
    kept = {key: _kept(cache, tree, key, case) for key, case in chosen.items()} if cache else {}
    found = {key: json.loads(path.read_text("utf-8")) for key, path in kept.items() if path.is_file()}
    left = {key: case for key, case in chosen.items() if key not in found}
    began = time.perf_counter()
    shares = [share for start in range(jobs) if (share := dict(list(left.items())[start::jobs]))]
    started = [_start(tree, share, place.resolve() / str(number)) for number, share in enumerate(shares)]
    for process, share, out in started:
        if process.wait():
            sys.exit(f"{tree}: the process ended with {process.returncode}:\n" + _tail(out / "log"))
        found |= {key: json.loads((out / key / "result.json").read_text("utf-8")) for key in share}
    for key, path in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found[key]), "utf-8")
    took = f"{len(left)} cases in {time.perf_counter() - began:.0f} s, {len(chosen) - len(left)} from the cache"
    print(f"{tree}: {took}", flush=True)
    return found


def _start(tree: Path, share: dict[str, Case], out: Path) -> tuple[subprocess.Popen[bytes], dict[str, Case], Path]:
    out.mkdir(parents=True)
    todo = out / "todo.json"
    todo.write_text(json.dumps(share), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, str(HERE / "compare_play.py"), str(todo), str(out)]
    with (out / "log").open("wb") as log:
        return subprocess.Popen(command, env=environment, cwd=out, stdout=log, stderr=log), share, out


def _tail(path: Path) -> str:
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-20:])


def _kept(cache: Path, tree: Path, key: str, case: Case) -> Path:
    """Where a result is kept: by the sources of the tree, the case, and how it is run."""
    told = hashlib.sha256(json.dumps(case, sort_keys=True).encode() + _digest(tree))
    for name in ["compare_play.py", *(["compare_cases.py"] if "python" in case else [])]:
        told.update((HERE / name).read_bytes())
    return cache / f"{key.replace('/', '-')}-{told.hexdigest()[:16]}.json"


@lru_cache
def _digest(tree: Path) -> bytes:
    told = hashlib.sha256()
    for path in sorted([*tree.rglob("*.py"), *tree.rglob("*.toml")]):
        told.update(path.read_bytes())
    return told.digest()


# the two together


def report(before: dict[str, Result], after: dict[str, Result]) -> int:
    """Print a line per group of cases and every difference; returns the exit code."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key in before:
        groups[key.partition("/")[0]].append(key)
    print(f"\n{'what':<14}{'cases':>6}{'runs':>6}{'refused':>9}{'records':>9}{'tensors':>9}  equal?")
    new = {key for key in before if before[key]["ended"] == NOT_THERE}
    differing = {
        key: list(_broken(after[key], "second") if key in new else _between(before[key], after[key])) for key in before
    }
    announced: Counter[str] = Counter()
    for key, found in differing.items():
        reasons = {line: _asked_for(f"{key}: {line}") for line in found}
        announced.update(reason for reason in reasons.values() if reason)
        differing[key] = [line for line, reason in reasons.items() if not reason]
    for group, keys in groups.items():
        count = [sum(part) for part in zip(*(_counts(before[key]) for key in keys), strict=True)]
        unequal = sum(bool(differing[key]) for key in keys)
        verdict = "yes" if not unequal else f"NO: {unequal} cases differ"
        print(f"{group:<14}{len(keys):>6}{count[0]:>6}{count[1]:>9}{count[2]:>9}{count[3]:>9}  {verdict}")
    for key, found in differing.items():
        for line in found[:8]:
            print(f"  {key}: {line}")
        if len(found) > 8:
            print(f"  {key}: and {len(found) - 8} more")
    for reason, count_of_lines in announced.items():
        print(f"  as the CHANGELOG says, {count_of_lines} times: {reason}")
    if new:
        print(f"  {len(new)} cases are of methods and experiments that the first tree does not have")
    return int(any(differing.values()))


def _counts(result: Result) -> tuple[int, int, int, int]:
    files = result["files"]
    runs = sum(name.endswith("config") for name in files)
    records = sum(len(content) for name, content in files.items() if name.endswith("rounds"))
    tensors = sum(len(content) for name, content in files.items() if name.endswith(("model", "snapshot")))
    given = result["given"] or {}
    in_memory = bool(given) and not runs
    return (
        runs + in_memory,
        int(result["ended"] not in ("done", NOT_THERE)),
        records + (len(given.get("records", ())) if in_memory else 0),
        tensors + (len(given.get("parameters", ())) if in_memory else 0),
    )


def _asked_for(line: str) -> str | None:
    """Why the CHANGELOG announces this difference, if it does."""
    return next((reason for pattern, reason in ASKED_FOR.items() if re.fullmatch(pattern, line)), None)


def _between(before: Result, after: Result) -> Iterator[str]:
    yield from _broken(before, "first")
    yield from differences(before, after)


def _broken(result: Result, which: str) -> Iterator[str]:
    if result["ended"] not in ("done", "ConfigError", "ProblemError", "DivergedError"):
        yield f"it shows nothing, for it ended with {result['ended']} in the {which} tree"


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Where two results differ, as lines to print."""
    if isinstance(before, dict) and isinstance(after, dict):
        if "ended" in before and before["ended"] != after["ended"]:
            yield f"ended with {before['ended']}, now with {after['ended']}"
            return
        for key in sorted(before.keys() | after.keys()):
            there = f"{where}/{key}" if where else str(key)
            if key not in after:
                yield f"{there} is gone"
            elif key not in before:
                if not _may_be_new(there, after[key]):
                    yield f"{there} is new: {json.dumps(after[key])[:80]}"
            else:
                yield from differences(before[key], after[key], there)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{where}[{at}]")
    elif json.dumps(before) != json.dumps(after):
        yield f"{where} was {json.dumps(before)[:80]}, is {json.dumps(after)[:80]}"


def _may_be_new(where: str, what: object) -> bool:
    """A run in memory may record more than it did; a snapshot may be there from the start, without tensors."""
    return where.startswith("given/records[") or (where.endswith("snapshot") and not what)


if __name__ == "__main__":
    main()
