"""The results in the docs that take a GPU: their commands by name, run one after the other within a time.

    python tools/gpu_results.py                                   what there is
    python tools/gpu_results.py paper pfl                         run these
    python tools/gpu_results.py thousand --jobs 4 --minutes 9 --out FOLDER      and go on later with the same line

Runs go to FOLDER/NAME.  Those of a sweep are kept if finished and resumed if interrupted, so a line may be repeated
until nothing is left; what measures seconds, and tests, are done again.  After `--minutes` whatever is running is
interrupted, which loses no finished round, and nothing else is begun.  FOLDER/results.tar.gz has the settings, records
and summaries of everything that is there, without models and snapshots.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEEDS = "--set seed=[21,22,23]"
KEPT = ("config.toml", "rounds.jsonl", "summary.json", "notes.jsonl", "summary.csv", "frontier.csv", "*.json", "*.log")


@dataclass(frozen=True)
class Result:
    """What belongs together in the docs: the page and the commands, of which those of `fedcef` get a folder."""

    page: str
    commands: tuple[str, ...]
    alone: bool = False
    """Whether it measures seconds, so that nothing else may run beside it."""


PARTIAL = "partial_cifar10 --only '5% / 1.5%' --only '3% / 0.7%' --only '2% / 0.4%' --only SCAFFOLD --only FedAvg"
THOUSAND = f"fedcef sweep partial_cifar10 {SEEDS} --set num_clients=1000 --set data.min_size=1"
CONTEXT = " ".join(f"--only 'r={ratio} / {ratio}, signs, context'" for ratio in (0.007, 0.015, 0.03))
SIGNS = (
    "--set compressor.ratio={ratio} --set compressor.values=sign --set algorithm.downlink=lossy"
    " --set down_compressor.ratio={ratio} --set down_compressor.values=sign"
)
RESULTS = {
    "tests": Result(
        "testing.md",
        ("pytest -q tests/kernels tests/simulation/test_capture.py tests/wire/test_devices.py tests/compressors",),
    ),
    "paper": Result(
        "performance.md",
        (
            "fedcef run paper_cifar10 --set compressor.ratio=0.01 --set algorithm.mixing=0.3 --set snapshot_every=0",
            "benchmarks/gpu.py --repeats 3",
        ),
        alone=True,
    ),
    "pfl": Result(
        "performance.md",
        (
            "benchmarks/pfl_cifar10.py --rounds 10 --repeats 3",
            "benchmarks/pfl_cifar10.py --whole --only 'fedcef, bfloat16'",
        ),
        alone=True,
    ),
    "figures": Result("results.md", ("fedcef sweep paper_cifar10 paper_mnist --set seed=[0,1,2] --paper",)),
    "frontier": Result("communication.md", (f"fedcef frontier frontier_cifar10 {SEEDS} {CONTEXT}",)),
    "contexts": Result(
        "wire.md",
        (
            "benchmarks/contexts.py frontier_cifar10 --rounds 400 --from 100 --every 20 --set algorithm.mixing=0.5"
            f" --set server_lr=2.0 {SIGNS.format(ratio=0.015)}",
        ),
    ),
    "partial": Result("participation.md", (f"fedcef frontier {PARTIAL} {SEEDS}",)),
    "unlike": Result("participation.md", (f"fedcef frontier {PARTIAL} {SEEDS} --set data.alpha=0.1",)),
    "thousand": Result(
        "participation.md",
        (
            f"{THOUSAND} --only '5% / 1.5%' --only 'snapshots, 2 bits' --only 'snapshots, 1 bit'",
            f"{THOUSAND} --only FedAvg --only SCAFFOLD",
        ),
    ),
    "resnet": Result("guides/batchnorm.md", (f"fedcef sweep resnet_cifar10 {SEEDS}",)),
    "resnet_partial": Result(
        "guides/batchnorm.md",
        (f"fedcef sweep resnet_cifar10 {SEEDS} --set num_clients=100 --set clients_per_round=10 --set server_lr=3.0",),
    ),
    "language_first": Result(
        "text.md",
        (
            "fedcef sweep language --set seed=[21] --set rounds=[900] --set local_update.final=0.0"
            " --only 'data parallel' --only 'every step'",
            "fedcef sweep language --set seed=[21] --set rounds=[60] --set local_lr=[2e-3,4e-3,8e-3]"
            " --only '2 bits, Muon'",
            "fedcef sweep language --set seed=[21] --set rounds=[30] --set local_lr=[4e-3] --only '4 bits, Muon'",
            "fedcef sweep language --set seed=[21] --set rounds=[113] --set local_update.final=0.0 --only '8 steps'",
        ),
    ),
    "language": Result("text.md", ("fedcef sweep language --set seed=[21]",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RESULTS))
    parser.add_argument("--jobs", type=int, default=3, help="runs at a time, where no seconds are measured (3)")
    parser.add_argument("--minutes", type=float, help="interrupt what is running after so many")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu_results")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in RESULTS]:
        parser.error(f"there is no {unknown[0]!r}; take some of {', '.join(RESULTS)}.")
    if not options.names:
        show()
        return
    ends = time.monotonic() + 60 * options.minutes if options.minutes else None
    left = [name for name in options.names if not done(name, options.out, options.jobs, ends)]
    collect(options.out)
    if left:
        sys.exit(f"Not finished: {', '.join(left)}.  The same line again goes on.")


def show() -> None:
    """Every name with its page and commands."""
    for name, result in RESULTS.items():
        print(f"{name}  (docs/{result.page}{', alone on the GPU' if result.alone else ''})")
        for command in result.commands:
            print(f"    {command}")


def done(name: str, out: Path, jobs: int, ends: float | None) -> bool:
    """Run what a result takes; whether all of it ended well."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    results: list[int] = []
    for number, line in enumerate(command_lines(name, out, jobs)):
        if ends is not None and time.monotonic() >= ends:
            return False
        if line[2:4] == ["fedcef", "run"]:  # for its seconds: a finished run would only be read
            shutil.rmtree(folder / str(number), ignore_errors=True)
        print(f"\n{name}: {shlex.join(line)}", flush=True)
        with (folder / f"{number}.log").open("a") as log:
            process = subprocess.Popen(line, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            try:
                results.append(process.wait(None if ends is None else max(0.0, ends - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                process.wait()
                return False
        print(*(folder / f"{number}.log").read_text().splitlines()[-12:], sep="\n    ", flush=True)
    return not any(results)


def command_lines(name: str, out: Path, jobs: int) -> list[list[str]]:
    """A result's commands, with this Python, their folders and how many runs go on at a time."""
    result, lines = RESULTS[name], []
    for number, command in enumerate(result.commands):
        program, *words = shlex.split(command)
        folder = out / name / str(number)
        if program == "fedcef":
            beside = [] if result.alone else ["--jobs", str(jobs)]
            lines.append([sys.executable, "-m", "fedcef", *words, "--out", str(folder), *beside])
        elif program == "pytest":
            lines.append([sys.executable, "-m", "pytest", *words])
        else:
            lines.append([sys.executable, program, *words, "--out", str(folder)])
    return lines


def collect(out: Path) -> None:
    """Settings, records, summaries and logs of all runs below a folder, in one archive."""
    with tarfile.open(out / "results.tar.gz", "w:gz") as archive:
        for path in sorted({path for pattern in KEPT for path in out.rglob(pattern)}):
            archive.add(path, path.relative_to(out))


if __name__ == "__main__":
    main()
