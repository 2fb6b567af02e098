"""A run that chooses its compressors by itself: `compressor = "auto"`.

The first rounds compress by Top-k in proportions that suit most runs.  Then the round to come is worked out on real
vectors (candidates.py), and the pair of compressors, up and down, is taken that tells everyone soonest: with a share δ
of the energy in each message, error feedback is behind by about 1/δ rounds in each direction, so that

    lag = WEIGHT/δ_up + 1/δ_down

is the smallest among the pairs that the bytes allow.  The way up weighs less since it is measured while the clients'
controls are still far behind, which they are not for long (docs/compressors.md, "Choosing by itself").

Where clients are away for long there is nothing to choose on the way down: messages stand alone (downlink.py).

For a byte budget the pairs are those that a round's share can pay; from then on both ratios go up and down together, as
in every run with a budget.  Where most clients take part once at most, it is chosen before the first round, too, and
with the pair after how many rounds the run ends (planning.py).  For a target accuracy (aiming.py) it is the cheapest
pair whose lag is a small part of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from math import inf, log, sqrt
from typing import Any

from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message
from fedcef.compressors import Auto
from fedcef.core.amounts import format_bytes
from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.problems.problem import Problem
from fedcef.simulation.budget import Budget, Spender, check_levels, ladder, rehearse
from fedcef.simulation.candidates import Candidate, Trial
from fedcef.simulation.downlink import told, with_downlink
from fedcef.simulation.engine import Engine, Play
from fedcef.simulation.planning import efficient, longest, may_end_early
from fedcef.simulation.spending import Choice, Spending, Way
from fedcef.simulation.state import RunState

PARTS = (8, 4)
"""It is chosen after an eighth of the rounds, and once more after a quarter."""
FIRST_ROUNDS = 3
"""But not before so many rounds."""
WEIGHT = 1 / 3
"""What the lag on the way up counts, where that on the way down counts 1."""
GENEROUS = 1.5
"""How many times their share of a budget the rounds before the first choice may take: what is told early is of use
longest."""
LAGS = 20
"""How many times its lag a run with a target and without a budget lasts."""

_WORDS = {"sign": "signs", "native": "values"}


def check_choice(algorithm: Algorithm, training: Training, problem: Problem) -> None:
    """Refuse a budget that has nothing to choose, and `auto` where there is nothing to choose for."""
    compressor = algorithm.compressor
    if not isinstance(compressor, Auto):
        if training.budget:
            check_levels(algorithm)
    elif not (training.budget or compressor.target):
        raise ConfigError(
            "compressor auto needs something to choose for: give a budget, such as budget = '20MB', or an accuracy as "
            "compressor.target."
        )
    elif compressor.target and problem.test is None:
        raise ConfigError("compressor.target is an accuracy on a test set, and the problem has none; give a budget.")


def begin(algorithm: Algorithm, rounds: Rounds, dim: int) -> Algorithm:
    """The method as a run begins that chooses by itself: with its downlink, and what the first rounds do."""
    return with_choice(with_downlink(algorithm, rounds, dim), first_choice(rounds.share))


def with_choice(algorithm: Algorithm, choice: Choice) -> Algorithm:
    """The method with these compressors; one that can have a lossy way down gets it, and the shorter index code.

    Messages down that stand alone stay what they are: there is no lag in them that a ratio would shorten.
    """
    ways: dict[str, Any] = {"compressor": choice.up.compressor}
    if (
        choice.down is not None
        and not algorithm.stands_alone
        and any(f.name == "down_compressor" for f in fields(algorithm))
    ):
        ways |= {"down_compressor": choice.down.compressor, "downlink": "lossy", "index_code": "context"}
    return replace(algorithm, **ways)


def first_choice(share: float) -> Choice:
    """What the first rounds do: the fewer of the clients are in a round, the more of them each message down is for."""
    return Choice(Way(0.014, "log3"), Way(0.02 * sqrt(share), "sign"))


def lag(pair: Sequence[Candidate]) -> float:
    """By how many rounds everyone is behind; `pair` is a candidate for each direction that is chosen."""
    up, *down = [1 / candidate.kept if candidate.kept > 0 else inf for candidate in pair]
    return WEIGHT * up + sum(down)


def cost(pair: Sequence[Candidate]) -> float:
    """The bytes of a round."""
    return sum(candidate.nbytes for candidate in pair)


def soonest(ways: Sequence[Sequence[Candidate]], most: float) -> tuple[Candidate, ...]:
    """The pair with the smallest lag among those that cost no more than `most`; if none does, the cheapest."""
    allowed = [pair for pair in product(*ways) if cost(pair) <= most]
    return min(allowed, key=lambda pair: (lag(pair), cost(pair))) if allowed else min(product(*ways), key=cost)


def cheapest(ways: Sequence[Sequence[Candidate]], most: float) -> tuple[Candidate, ...]:
    """The cheapest pair among those whose lag is no more than `most`; if none has that, the one with the smallest."""
    allowed = [pair for pair in product(*ways) if lag(pair) <= most]
    return min(allowed, key=lambda pair: (cost(pair), lag(pair))) if allowed else min(product(*ways), key=lag)


@dataclass(frozen=True, eq=False)
class Chooser:
    """Plays the rounds of a run that chooses; `play` has the signature of the engine's."""

    engine: Engine
    """With the method of the first rounds."""
    z0: Tensor
    target: float
    """The accuracy to reach; 0: none."""
    player: Callable[[Algorithm], Play]
    """How the rounds of a method are played."""
    overwrites: bool = False
    """Whether that overwrites the state that it is given."""
    _spenders: dict[tuple[Choice | None, int], Spender] = field(default_factory=dict)

    def start(self, choice: Choice | None = None, nbytes: float = 0, ends: int = 0) -> Spending:
        """What is known before the first round with this choice, of which each is expected to cost so much."""
        begun = replace(Spending.start([]), choice=choice, ends=ends)
        levels, rounds = self.spender(begun).levels, self.engine.rounds
        wanted = (choice or first_choice(rounds.share)).up.ratio
        middle = min(range(len(levels)), key=lambda i: abs(log(levels[i].up_ratio / wanted)))
        if not rounds.training.budget:
            return replace(begun, rehearsed=(0,) * len(levels), measured=(0,) * len(levels), level=middle)
        costs = rehearse(levels, rounds.cohort_size, rounds.num_clients, self.z0)
        spending = replace(begun, rehearsed=tuple(costs), measured=(0,) * len(levels))
        return spending.learn(middle, round(nbytes)) if nbytes else spending

    def play(self, state: RunState, number: int) -> tuple[RunState, Message]:
        """The next round; some begin with a choice."""
        spending, said = state.spending, ""
        assert spending is not None, "a run that chooses remembers what"
        if self.is_due(number, spending):
            pair, ends = self.pair(state, number)
            choice = Choice(pair[0].way, pair[1].way if len(pair) > 1 else None)
            if (choice, ends) != (spending.choice, spending.ends):
                spending = replace(self.start(choice, cost(pair), ends), warned=spending.warned, heard=spending.heard)
                said = self.sentence(spending)
        after, down = self.spender(spending).play(replace(state, spending=spending), number)
        told = after.spending if after.spending is not None else spending
        return replace(after, spending=replace(told, notes=(said, *told.notes) if said else told.notes)), down

    @property
    def plans(self) -> bool:
        """Whether the run chooses after how many rounds it ends."""
        return may_end_early(self.engine.rounds, self.engine.algorithm)

    def is_due(self, number: int, spending: Spending) -> bool:
        """Whether this round begins with a choice."""
        rounds = spending.ends or self.engine.rounds.training.rounds
        return number in {max(FIRST_ROUNDS, rounds // part) for part in PARTS} or (number == 0 and self.plans)

    def pair(self, state: RunState, number: int) -> tuple[tuple[Candidate, ...], int]:
        """What is best from this round on, by what it would send, and where the run then ends; 0: at its last round."""
        spending, training = state.spending, self.engine.rounds.training
        assert spending is not None, "a run that chooses remembers what"
        spender = self.spender(spending)
        played = spender.levels[spending.level].algorithm if number else self.engine.algorithm
        trial = Trial.of(replace(self.engine, algorithm=played), state, number)
        if not training.budget:
            reaching = trial.reaching(spender.budget.reach(number))
            return cheapest([reaching.candidates(name) for name in reaching.noted], training.rounds / LAGS), 0

        def best(rounds: int) -> tuple[tuple[Candidate, ...], float]:
            budget = replace(spender.budget, rounds=rounds)
            budget = replace(budget, tilt=0.0) if self.plans else budget  # the later rounds must be paid for, too
            reaching = trial.reaching(budget.reach(number))
            share = budget.share(number, training.budget - budget.charged(state, number))
            ways = [reaching.candidates(name, share) for name in reaching.noted]
            return soonest([efficient(way) for way in ways] if self.plans else ways, share), share

        if not self.plans:
            return best(training.rounds)[0], 0
        ends, pair = longest(number, training.rounds, best, lag, cost)
        return pair, ends if ends < training.rounds else 0

    def spender(self, spending: Spending) -> Spender:
        """Who plays the rounds with a choice, or the first ones."""
        choice, ends = spending.choice, spending.ends
        if (choice, ends) not in self._spenders:
            algorithm = self.engine.algorithm if choice is None else with_choice(self.engine.algorithm, choice)
            rounds, training = self.engine.rounds, self.engine.rounds.training
            levels = ladder(algorithm, len(self.z0), per_octave=4 if choice and training.budget else 2)
            total = round(training.budget * (GENEROUS if choice is None else 1))
            away = 0.0 if algorithm.stands_alone else 1 - rounds.share  # nobody is sent what was missed
            budget = Budget(total, ends or training.rounds, training.budget_tilt, away)
            kind = Spender if budget.total else Holder
            plays = [self.player(level.algorithm) for level in levels]
            self._spenders[choice, ends] = kind(budget, levels, plays, self.overwrites)
        return self._spenders[choice, ends]

    def sentence(self, spending: Spending) -> str:
        """What was chosen, and what for."""
        choice, training = spending.choice, self.engine.rounds.training
        assert choice is not None, "only what was chosen is told"
        down = f", {_told(choice.down)} down (lossy, index contexts)" if choice.down else told(self.engine.algorithm)
        goal = f"{format_bytes(training.budget)} over" if training.budget else f"an accuracy of {self.target:g} within"
        rounds = f"{training.rounds} rounds"
        if spending.ends:
            why = "sends newcomers all that was sent before" if choice.down else "leaves less for the others"
            rounds = f"{spending.ends} of {rounds}, as each further one {why}"
        return f"compressor auto: {_told(choice.up)} up{down}, for {goal} {rounds}."


class Holder(Spender):
    """Plays all rounds at the level that the run is at: there is no budget to keep to."""

    def play(self, state: RunState, number: int) -> tuple[RunState, Message]:
        """The next round."""
        spending = state.spending
        assert spending is not None, "a run that chooses remembers what"
        after, down = self.plays[spending.level](state, number)
        return replace(after, spending=replace(spending, notes=())), down


def _told(way: Way) -> str:
    percent = float(f"{100 * way.ratio:.2g}")
    return f"Top-{percent:g}% {_WORDS.get(way.values, way.values)}"
