"""After how many rounds a run with a budget ends, where most clients take part once at most: `compressor = "auto"`.

A client that comes for the first time needs the whole log of down-messages.  So if nobody comes twice, R rounds with
messages of d bytes send R²/2·d to each place in a cohort: half the rounds can have messages four times as long.  With
very many rounds a budget is gone on the heads of the messages alone.  Where clients come back the bytes of a message
do not depend on when it is sent, and more rounds are no loss.  Messages that stand alone are sent to a cohort and not
to all: then it ends early only if a budget does not reach for all rounds.

For every number of rounds there is a pair of compressors whose lag is the smallest (choosing.py).  The run takes the
number that lasts for the most lags: rounds / lag is the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedcef.algorithms.algorithm import Algorithm
from fedcef.core.round import Rounds
from fedcef.simulation.candidates import Candidate

PER_OCTAVE = 4
"""How many numbers of rounds are considered between one and twice that."""
LEAST = 8
"""No run is planned to end before so many rounds."""


def may_end_early(rounds: Rounds, algorithm: Algorithm) -> bool:
    """Whether a run with a budget may have fewer rounds than it was given.

    Clients take part less than once in the mean, and nothing else is spread over the number of rounds.
    """
    training, update = rounds.training, algorithm.local_update
    schedules = (training.local_schedule, training.server_schedule)
    steady = all(schedule.for_rounds(training.rounds) is schedule for schedule in schedules)
    steady = steady and update.for_steps(training.rounds * algorithm.local_steps) is update
    return bool(training.budget) and rounds.share * training.rounds < 1 and steady


def numbers(done: int, most: int) -> list[int]:
    """Numbers of rounds from `most` downwards, after which a run could end that has done so many."""
    steps = range(PER_OCTAVE * most.bit_length())
    found = (round(most * 2 ** (-step / PER_OCTAVE)) for step in steps)
    return list(dict.fromkeys(n for n in found if n == most or n >= max(LEAST, done + 1)))


def efficient(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that keep more than every cheaper one: no other is ever part of the best pair."""
    best: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.nbytes, -c.kept)):
        if not best or candidate.kept > best[-1].kept:
            best.append(candidate)
    return best


def longest(
    done: int,
    most: int,
    best: Callable[[int], tuple[tuple[Candidate, ...], float]],
    lag: Callable[[Sequence[Candidate]], float],
    cost: Callable[[Sequence[Candidate]], float],
) -> tuple[int, tuple[Candidate, ...]]:
    """The number of rounds that lasts for the most lags, and its pair, of those numbers that can be paid.

    `best` gives for each number its pair, and what a round may cost.  If none can be paid it is the smallest.
    """
    found = {n: best(n) for n in numbers(done, most)}
    payable = [n for n, (pair, share) in found.items() if cost(pair) <= share] or [min(found)]
    ends = max(payable, key=lambda n: ((n - done) / lag(found[n][0]), n))
    return ends, found[ends][0]
