"""Whether a client that is seen for the first time should be treated in another way than FedCEF does, or the start be.

    python benchmarks/first_contact.py [EXPERIMENT] [--seeds 21 22 23 24] [--set KEY=VALUE ...] [--only LABEL ...]
        [--cache FOLDER] [--out FOLDER]

The rules are those of first_contact_rules.py, each in place of FedCEF in a shipped experiment with cohorts of signs
(`participation`, `partial_mnist`).  What sends more is compared with FedCEF that sends as many bytes up (and down)
without regard to contact, by a larger ratio for all.  Printed are means and standard deviations over seeds, after a
quarter of the rounds and at the end, and of the differences to FedCEF with the same seed.  `--cache` keeps every run
that has ended, so that a study can be taken up again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from first_contact_rules import (
    DenserFirst,
    DenserStart,
    FromC,
    OwnGradient,
    WarmMixing,
    WarmStep,
    as_kind,
)
from measure import machine, write

from fedcef.algorithms import FedCEF
from fedcef.compressors import Compressor
from fedcef.problems.problem import Problem
from fedcef.runs.experiments import load_settings
from fedcef.runs.measures import Measuring
from fedcef.runs.settings import Settings
from fedcef.simulation.simulation import Simulation

AS_IS = "as it is"
START = 10  # rounds that count as the first ones

Result = dict[str, float]


@dataclass(frozen=True)
class Messages:
    """How many messages a run has, and how many of them are a client's first."""

    rounds: int
    of_a_round: int
    clients: int

    @property
    def all(self) -> int:
        """Those of all rounds."""
        return self.rounds * self.of_a_round

    @property
    def first(self) -> float:
        """As many as clients are met, in expectation."""
        return self.clients * (1 - (1 - self.of_a_round / self.clients) ** self.rounds)


def bits(ratio: float) -> float:
    """What signs of so large a share of the entries take for each entry of the vector, where they are and which."""
    where = 0.0 if ratio >= 1 else -ratio * math.log2(ratio) - (1 - ratio) * math.log2(1 - ratio)
    return where + ratio


def as_many_bytes(compressor: Compressor, times: float, share: float) -> Compressor:
    """A ratio for all messages that takes as many bytes as `times` the ratio in this share of them."""
    ratio: float = compressor.ratio  # type: ignore[attr-defined]
    wanted = (1 - share) * bits(ratio) + share * bits(min(1.0, times * ratio))
    low, high = ratio, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bits(middle) < wanted else (low, middle)
    return replace(compressor, ratio=round(low, 4))  # type: ignore[call-arg]


def variants(messages: Messages) -> dict[str, Callable[[FedCEF], FedCEF]]:
    """What is compared, as changes of the experiment's method."""
    start = START / messages.rounds

    def ratios(method: FedCEF, times: float, share: float, both_ways: bool = False) -> FedCEF:
        up = as_many_bytes(method.compressor, times, share)
        down = as_many_bytes(method.down_compressor, times, share) if both_ways else method.down_compressor
        return replace(method, compressor=up, down_compressor=down)

    def warm(method: FedCEF, mixing: float, slow: float) -> FedCEF:
        return as_kind(WarmMixing, replace(method, mixing=mixing), slow=slow)

    found: dict[str, Callable[[FedCEF], FedCEF]] = {AS_IS: lambda method: method}
    for times in (2, 5, 10):
        found[f"first message x{times}"] = partial(as_kind, DenserFirst, times=float(times))
        found[f"as many bytes as x{times}"] = partial(ratios, times=times, share=messages.first / messages.all)
    found["begun at c"] = partial(as_kind, FromC)
    found["own gradient once"] = partial(as_kind, OwnGradient)
    found["own gradient always"] = partial(as_kind, OwnGradient, how="always")
    found["mixing 0.5, warm"] = partial(warm, mixing=0.5, slow=1.0)
    found["mixing 0.5, warm x4"] = partial(warm, mixing=0.5, slow=4.0)
    found["mixing 0.2"] = lambda method: replace(method, mixing=0.2)
    found["mixing 0.2, warm"] = partial(warm, mixing=0.2, slow=1.0)
    found["mixing 0.2, warm x4"] = partial(warm, mixing=0.2, slow=4.0)
    found[f"first {START} rounds x5 up"] = partial(as_kind, DenserStart, rounds=START)
    found[f"as many bytes as first {START} up"] = partial(ratios, times=5, share=start)
    found[f"first {START} rounds x5 both ways"] = partial(as_kind, DenserStart, rounds=START, both_ways=True)
    found[f"as many bytes as first {START} both ways"] = partial(ratios, times=5, share=start, both_ways=True)
    found[f"step grows in {START} rounds"] = partial(as_kind, WarmStep, rounds=START)
    return found


def played(settings: Settings, problem: Problem, method: FedCEF, cache: Path | None = None) -> Result:
    """What a run reached, after a quarter of its rounds and at its end; or what the cache says of it."""
    name = hashlib.sha256(repr((settings.to_toml(), method)).encode()).hexdigest()[:16]
    kept = cache / f"{name}.json" if cache else None
    if kept and kept.exists():
        return dict(json.loads(kept.read_text()))
    simulation = Simulation(problem, method, settings)
    measuring = Measuring(simulation.problem, simulation.algorithm.step, settings)
    result: Result = {}
    for t in range(1, settings.rounds + 1):
        simulation.step()
        if t in (settings.rounds // 4, settings.rounds):
            when = "" if t == settings.rounds else "early_"
            measures = measuring.as_numbers(measuring.of(simulation, all_samples=False))
            result |= {f"{when}{what}": measures[what] for what in ("accuracy", "train_loss")}
    simulation.check_finite()
    totals = simulation.ledger.totals()
    result |= {"up": totals["wire_up_bytes"], "down": totals["wire_down_bytes"]}
    if kept:
        kept.write_text(json.dumps(result))
    return result


def spread(values: Sequence[float], form: str) -> str:
    """Mean ± standard deviation."""
    around = f" ± {stdev(values):{form}}" if len(values) > 1 else ""
    return f"{fmean(values):{form}}{around}"


def table(runs: dict[str, dict[str, Result]]) -> str:
    """Of every variant: means over seeds, and of the differences to the method as it is with the same seed."""
    rows = ["| | accuracy | difference | train loss | lower loss | loss at a quarter | MB up | MB in all |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for label, by_seed in runs.items():
        found = list(by_seed.values())
        usual = [runs[AS_IS][seed] for seed in by_seed]
        pairs = list(zip(found, usual, strict=True))
        accuracy = spread([100 * run["accuracy"] for run in found], ".2f")
        difference = spread([100 * (run["accuracy"] - other["accuracy"]) for run, other in pairs], "+.2f")
        lower = f"{sum(run['train_loss'] < other['train_loss'] for run, other in pairs)} of {len(pairs)}"
        loss, early = (spread([run[what] for run in found], ".4f") for what in ("train_loss", "early_train_loss"))
        up, down = (fmean(run[way] for run in found) / 1e6 for way in ("up", "down"))
        said = ("–", "–") if label == AS_IS else (difference.replace("± +", "± "), lower)
        rows.append(
            f"| {label} | {accuracy}% | {said[0]} | {loss} | {said[1]} | {early} | {up:.3f} | {up + down:.2f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("experiment", nargs="?", default="participation")
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23, 24])
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--only", nargs="+", metavar="LABEL", help="these beside the method as it is")
    parser.add_argument("--cache", type=Path, help="a folder for runs that have ended")
    parser.add_argument("--out", type=Path, help="a folder for the record")
    arguments = parser.parse_args()
    if arguments.cache:
        arguments.cache.mkdir(parents=True, exist_ok=True)
    runs: dict[str, dict[str, Result]] = {}
    for seed in arguments.seeds:
        settings = load_settings(arguments.experiment, [*arguments.changes, f"seed={seed}"])
        problem = settings.build_problem()
        usual = settings.build_algorithm(problem)
        assert isinstance(usual, FedCEF), "this experiment's method is not FedCEF"
        of_a_round = settings.clients_per_round or settings.num_clients
        found = variants(Messages(settings.rounds, of_a_round, settings.num_clients))
        for label in (AS_IS, *(arguments.only or [name for name in found if name != AS_IS])):
            result = played(settings, problem, found[label](usual), arguments.cache)
            runs.setdefault(label, {})[str(seed)] = result
            words = f"{result['accuracy']:.4f}, loss {result['train_loss']:.4f}, {result['up'] / 1e6:.3f} MB up"
            print(f"  seed {seed}, {label:40} {words}", flush=True)
    print(table(runs))
    if arguments.out:
        record = {"machine": machine(), "experiment": arguments.experiment, "set": arguments.changes, "runs": runs}
        write("first_contact", record, arguments.out)


if __name__ == "__main__":
    main()
