"""What a page answers first: who reaches about the best result with the fewest bytes, in a sentence and a few tiles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcef.core.amounts import format_bytes
from fedcef.report.data.groups import Method, lead_metric
from fedcef.report.data.names import METRICS
from fedcef.report.data.noise import within_noise

POINT = 0.01  # "about the best" accuracy: this much below it, or the spread over its seeds where that is more
DECADE = 10.0  # "about the best" gap: this many times the least
STRETCH = 0.01  # "about the best" of any other metric: this share of its way from the start
SAME = 1.05  # ratios of bytes below this are no difference
NAMED = 3  # ties that are named; more are counted


@dataclass(frozen=True)
class Tile:
    """A number that stands out, and whose it is."""

    what: str
    value: str
    whose: str
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """A sentence about methods on the same data, and its numbers."""

    sentence: str
    tiles: tuple[Tile, ...] = ()


@dataclass(frozen=True, eq=False)
class _Contest:
    """The methods that have a result, by a metric of which more (sign 1) or less (sign -1) is better."""

    items: tuple[Method, ...]
    metric: str

    @property
    def sign(self) -> float:
        return 1.0 if self.metric == "accuracy" else -1.0

    def end(self, item: Method) -> float:
        return float(item.last(self.metric).mean())

    @property
    def best(self) -> Method:
        return max(self.items, key=lambda item: self.sign * self.end(item))

    @property
    def target(self) -> float:
        """What counts as about the best, rounded to what is printed and to the side that is easier to reach."""
        best, values = self.end(self.best), self.best.last(self.metric)
        if self.metric == "accuracy":
            spread = float(values.std(ddof=1)) if values.size > 1 else 0.0
            return math.floor(1000 * (best - max(POINT, spread)) + 1e-9) / 1000
        curve = self.best.curve(self.metric)
        start = float(curve.mean[0]) if curve else best
        reach = DECADE * best if self.metric == "gap" and best > 0 else best + STRETCH * max(start - best, 0.0)
        if reach == 0:
            return 0.0
        size = 10.0 ** (1 - math.floor(math.log10(abs(reach))))
        return math.ceil(reach * size - 1e-9) / size

    def price(self, item: Method) -> float:
        """The bytes at the first evaluated round that is as good as the target, in the mean; NaN without one."""
        curve = item.curve(self.metric)
        reached = np.flatnonzero(self.sign * curve.mean >= self.sign * self.target) if curve else np.empty(0, int)
        return float(curve.x["wire_bytes"][reached[0]]) if curve and reached.size else math.nan

    def show(self, value: float) -> str:
        if self.metric == "accuracy":
            return f"{100 * value:.1f}%"
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"

    @property
    def name(self) -> str:
        return {"accuracy": "accuracy", "gap": "gap to the optimum"}.get(self.metric, METRICS[self.metric][0].lower())


def find_target(items: Sequence[Method]) -> float | None:
    """What the answer takes for about the best result, in the metric's own unit; None where no method has a result."""
    contest = _contest(items)
    return contest.target if contest.items else None


def find_answer(items: Sequence[Method]) -> Answer:
    """The answer about methods that were run on the same data."""
    contest = _contest(items)
    sound = contest.items
    if not sound:
        return Answer(_nothing(items, contest.metric))
    if len(sound) == 1:
        return _alone(contest, items)
    prices = {item: price for item in sound if math.isfinite(price := contest.price(item))}
    if not prices:  # the bytes are not known
        end = contest.show(contest.end(contest.best))
        return Answer(f"{contest.best.label} ends with the best {contest.name}, {end}.", (_best(contest),))
    hero = min(prices, key=lambda item: prices[item])
    sentence, note = _compare(contest, prices, hero)
    target = contest.show(contest.target)
    tiles = [
        _best(contest),
        Tile(f"Fewest bytes to {_at(contest)} {target}", format_bytes(prices[hero]), hero.label, note),
        _least(contest),
    ]
    return Answer(sentence, tuple(tile for tile in tiles if tile))


def _contest(items: Sequence[Method]) -> _Contest:
    metric = lead_metric(items)
    sound = [item for item in items if not item.diverged and math.isfinite(float(item.last(metric).mean()))]
    return _Contest(tuple(sound), metric)


def _compare(contest: _Contest, prices: dict[Method, float], hero: Method) -> tuple[str, str]:
    """The sentence, and what of it fits a tile."""
    start = f"{hero.label} {_verb(contest, hero)} {contest.show(contest.target)}"
    start += " from the start" if prices[hero] == 0 else f" after {format_bytes(prices[hero])}"
    others = {item: price for item, price in prices.items() if item is not hero}
    rivals = {item: price for item, price in others.items() if item.algorithm != hero.algorithm} or others
    if not rivals:
        second = max((item for item in contest.items if item is not hero), key=lambda i: contest.sign * contest.end(i))
        ends = f"{second.label}, ends at {contest.show(contest.end(second))}"
        return f"{start}; no other method gets there. The next best, {ends}.", "no other method gets there"
    rival = min(rivals, key=lambda item: rivals[item])
    ratio = rivals[rival] / prices[hero] if prices[hero] > 0 else math.inf
    if ratio < SAME:
        return f"{start}, about as many bytes as {rival.label} needs.", f"about as many as {rival.label}"
    if math.isinf(ratio):
        return f"{start}; {rival.label} needs {format_bytes(rivals[rival])}.", ""
    times = f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.1f}×"
    kind = "the next method" if rival.algorithm != hero.algorithm else "the next"
    return f"{start}, {times} fewer bytes than {rival.label}, {kind} to get there.", f"{times} fewer than {rival.label}"


def _alone(contest: _Contest, items: Sequence[Method]) -> Answer:
    item = contest.items[0]
    end, total = contest.show(contest.end(item)), float(item.last("wire_bytes").mean())
    done = min(record.last_round for record in item.records)
    rounds = f"{done:,} round{'' if done == 1 else 's'}"
    cost = f"{rounds} and {format_bytes(total)}" if total > 0 else rounds
    seeds = f" on average over {len(item.records)} seeds" if len(item.records) > 1 else ""
    sentence = f"{item.label} {_verb(contest, item)} {end}{seeds} after {cost}"
    left = len(items) - 1
    sentence += f"; {left} other method{' has' if left == 1 else 's have'} no result." if left else "."
    tiles = [_best(contest), Tile("Rounds", f"{done:,}", item.label)]
    return Answer(
        sentence, tuple([*tiles, Tile("Bytes sent", format_bytes(total), item.label)] if total > 0 else tiles)
    )


def _nothing(items: Sequence[Method], metric: str) -> str:
    """Why there is no answer."""
    if all(item.diverged for item in items):
        if len(items) > 1:
            return f"All {len(items)} methods diverged."
        return f"{items[0].label} diverged after {max(record.last_round for record in items[0].records):,} rounds."
    return f"No run has recorded an {metric} yet, so there is nothing to compare."


def _best(contest: _Contest) -> Tile:
    """The best result, with those that the spread over seeds cannot tell from it."""
    best = contest.best
    values = best.last(contest.metric)
    factor = 100 if contest.metric == "accuracy" else 1
    spread = f" ± {_digits(factor * float(values.std(ddof=1)))}" if values.size > 1 and values.std() > 0 else ""
    others = [item for item in contest.items if item is not best]
    equal = [i.label for i in others if within_noise(i.last(contest.metric), values)]
    named = ", ".join(equal) if len(equal) <= NAMED else f"{len(equal)} others"
    what = (
        ("Accuracy" if contest.metric == "accuracy" else contest.name.capitalize())
        if not others
        else (f"{'Best' if contest.sign > 0 else 'Least'} {contest.name}")
    )
    return Tile(what, contest.show(contest.end(best)) + spread, best.label, f"a tie with {named}" if equal else "")


def _least(contest: _Contest) -> Tile | None:
    """Who sent least in its whole run, and what it got for it."""
    totals = {item: float(item.last("wire_bytes").mean()) for item in contest.items if not item.note}
    totals = {item: total for item, total in totals.items() if total > 0}
    if len(totals) < 2:
        return None
    least = min(totals, key=lambda item: totals[item])
    end = f"{contest.name} {contest.show(contest.end(least))}"
    return Tile("Fewest bytes in a whole run", format_bytes(totals[least]), least.label, end)


def _verb(contest: _Contest, item: Method) -> str:
    verb = "has so far reached" if item.note == "unfinished" else "reaches"
    return verb if contest.metric == "accuracy" else f"{verb} {_a(contest.name)} of"


def _at(contest: _Contest) -> str:
    return "reach" if contest.metric == "accuracy" else f"{_a(contest.name)} of"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _digits(value: float) -> str:
    return f"{value:.1f}" if value >= 0.05 else f"{value:.1g}"
