"""Rounds until the gradient mapping is small, with a step that finds its own length.

The local step begins at half of one over the largest curvature, which clients estimate.  That suits squares; it is
short for a logistic loss, whose curvature is small where it is well fitted, and may be long for a compressor.  So the
step is looked after from time to time: halved after a while without progress, for a logistic loss doubled after a while
of steady progress, and where the objective blows up the run goes back to the best point so far with a quarter of it.
What was sent in vain is counted.  What many rounds have not finished Newton steps do, each of them a round (newton.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, State
from fedcef.core.training import Training
from fedcef.estimators.design import Design
from fedcef.estimators.linear import Link
from fedcef.estimators.newton import Newton
from fedcef.problems.problem import Problem
from fedcef.python.history import Measures
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.simulation import Simulation

EVERY = 10  # rounds between looks
PROGRESS = 0.99  # a look is progress if the gradient mapping is so much of the smallest one
PATIENCE = 10  # looks without progress before the step is halved
STEADY = 4  # looks with progress before the step is doubled; twice as many after every blow-up
FAR = 10.0  # times the best point's objective: a blow-up


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the rounds ended, what was seen on the way, and whether that was far enough."""

    point: Tensor  # (p,)
    records: list[Measures]
    converged: bool


@dataclass(frozen=True, eq=False)
class _Best:
    size: float
    record: Measures
    round: int
    state: dict[str, State]


def solve(
    problem: Problem,
    whole: Problem,
    algorithm: Algorithm,
    curvature: float,
    tol: float,
    *,
    design: Design,
    link: Link,
    shares: Tensor | None,
    training: Training,
    newton_after: int | None,
) -> Solution:
    """Minimise until |G| <= tol·|∇f(start)|, or for so many rounds.

    `whole` is the same problem with all samples at one client: looks are taken there.  Clients count by their `shares`,
    or alike.
    """
    rounds = training.rounds
    evaluator = Evaluator(whole, 1 / curvature)
    goal = tol * float(evaluator.loss_and_gradient(problem.z0)[1].norm())

    def simulate() -> Simulation:
        return Simulation(problem, algorithm, training, gradients=design.oracle(problem, link), weights=shares)

    simulation = simulate()
    first = algorithm.local_lr
    in_vain = dict.fromkeys(["round", *simulation.ledger.totals()], 0)

    def look() -> Measures:
        counts = {"round": simulation.round, **simulation.ledger.totals()}
        return {**{name: count + in_vain[name] for name, count in counts.items()}, **evaluator(simulation.model())}

    records = [look()]
    size = math.sqrt(records[0]["stationarity"])
    best = _Best(size, records[0], 0, simulation.parts())
    stale, steady, wait = 0, 0, STEADY
    newton = Newton(design, link, evaluator, goal)
    while size > goal and records[-1]["round"] < rounds:
        if newton_after is not None and records[-1]["round"] >= newton_after and newton.suits(simulation.model()):
            point, steps = newton.finish(simulation.model(), records[-1], rounds)
            records += steps
            return Solution(point, records, math.sqrt(records[-1]["stationarity"]) <= goal)
        for _ in range(min(EVERY, rounds - int(records[-1]["round"]))):
            simulation.step()
        record, factor = look(), 1.0
        size = math.sqrt(record["stationarity"]) if math.isfinite(record["stationarity"]) else math.inf
        objective = best.record["objective"]
        blown_up = not math.isfinite(size) or not record["objective"] <= objective + FAR * abs(objective)
        if blown_up:
            factor, wait = 0.25, 2 * wait
        elif size < PROGRESS * best.size:
            best, stale, steady = _Best(size, record, simulation.round, simulation.parts()), 0, steady + 1
            factor = 2.0 if steady >= wait and 2 * algorithm.local_lr <= link.room * first else 1.0
        else:
            stale, steady = stale + 1, 0
            factor = 0.5 if stale > PATIENCE else 1.0
        if factor != 1:
            algorithm, stale, steady = replace(algorithm, local_lr=factor * algorithm.local_lr), 0, 0
            state, at = (best.state, best.round) if blown_up else (simulation.parts(), simulation.round)
            simulation = simulate()
            simulation.restore(at, state)
        if blown_up:
            counts = {"round": simulation.round, **simulation.ledger.totals()}
            in_vain = {name: int(record[name]) - count for name, count in counts.items()}
            record = look()
        records.append(record)
    return Solution(simulation.model(), records, size <= goal)
