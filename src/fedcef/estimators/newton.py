"""Newton steps in the features in use, for a fit that many rounds have not finished.

First-order rounds need as many of them as the problem is badly conditioned.  A linear model with few coefficients in
use has another way: every client sends the curvature of its loss between those, k(k + 1)/2 numbers, and the server
minimises

    g'(u - z) + (u - z)'H(u - z)/2 + h(u)

over them, the next point of the proximal Newton method, and goes there as far as the objective falls.  In use
is what is not 0, or would not be after a proximal step.  For squares a step is exact, until other features come in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from fedcef.estimators.design import Design
from fedcef.estimators.linear import Link
from fedcef.estimators.penalties import Penalty
from fedcef.python.history import Measures
from fedcef.simulation.evaluation import Evaluator
from fedcef.wire import Dense, frame_nbytes

WIDEST = 2000  # coefficients between which curvatures are sent
BURST = 50  # accelerated proximal steps before the server tries an exact one
BURSTS = 100
HALVINGS = 30  # of a step that does not lead down


@dataclass(frozen=True, eq=False)
class Newton:
    """Newton steps for one fit, until the gradient mapping is at most `goal`."""

    design: Design
    link: Link
    evaluator: Evaluator
    goal: float

    def suits(self, z: Tensor) -> bool:
        """Whether few enough coefficients are in use, and there is room for others."""
        return 2 * int(z.count_nonzero()) <= WIDEST or len(z) <= WIDEST

    def finish(self, z: Tensor, record: Measures, rounds: int) -> tuple[Tensor, list[Measures]]:
        """From z, whose record this is, to the minimum, or until there have been so many rounds; one record a step."""
        records: list[Measures] = []
        while math.sqrt(record["stationarity"]) > self.goal and record["round"] < rounds:
            u, counts = self._model_minimum(z)
            moved = self._taken_up(z, u, record)
            if moved is None:
                break
            z, measures, tries = moved
            clients = len(self.design.shares)
            number = int(frame_nbytes({"number": Dense(z[:1])}))
            up = clients * (counts + (tries - 1) * number)  # a look has the last try's, beside a gradient
            down = clients * tries * int(frame_nbytes({"point": Dense(z)}))
            sent = {"wire_up_bytes": record["wire_up_bytes"] + up, "wire_down_bytes": record["wire_down_bytes"] + down}
            record = {**record, "round": record["round"] + 1, **sent, **measures}
            records.append(record)
        return z, records

    def _model_minimum(self, z: Tensor) -> tuple[Tensor, int]:
        """The minimiser of the model at z, and the bytes in which a client sends its curvature."""
        problem = self.evaluator.problem
        penalty, gradient = cast(Penalty, problem.regularizer), self.evaluator.loss_and_gradient(z)[1]
        chosen = in_use(z, gradient, penalty, self.evaluator.step)
        shape = cast(tuple[int, int], tuple(problem.layout.shapes[0]))
        H = curvature(self.design, self.link, z, shape, chosen)
        u = minimise_model(z, gradient, H, penalty, chosen, 0.01 * self.goal)
        triangle = torch.zeros(len(chosen) * (len(chosen) + 1) // 2, dtype=z.dtype)
        return z.index_copy(0, chosen, u), int(frame_nbytes({"curvature": Dense(triangle)}))

    def _taken_up(self, z: Tensor, u: Tensor, record: Measures) -> tuple[Tensor, Measures, int] | None:
        """The way from z to u as far as it leads down, what is measured there, and after how many tries."""
        before = record["objective"]
        for tries in range(1, HALVINGS + 1):
            point = z + 0.5 ** (tries - 1) * (u - z)
            measures = self.evaluator(point)
            down = measures["objective"] < before or measures["stationarity"] < 0.25 * record["stationarity"]
            if down and math.isfinite(measures["objective"]):
                return point, measures, tries
        return None


def in_use(z: Tensor, gradient: Tensor, penalty: Penalty, step: float) -> Tensor:
    """The numbers of the coefficients that a Newton step moves, (k,): first those that are not 0."""
    moved = (penalty.prox(z - step * gradient, step) - z).abs()
    order = torch.where(z != 0, torch.inf, moved)
    count = min(int((order > 0).sum()), WIDEST)
    return order.topk(count).indices.sort().values


def curvature(design: Design, link: Link, z: Tensor, shape: tuple[int, int], chosen: Tensor) -> Tensor:
    """The second derivatives of the loss between the chosen coefficients, (k, k): the sum of what clients send.

    `shape` is that of the coefficients, (C, d); what follows them in z are intercepts.
    """
    outputs, size = shape[0], shape[0] * shape[1]
    free = chosen >= size
    output = torch.where(free, chosen - size, chosen // shape[1])
    features, place = torch.unique(chosen[~free] % shape[1], return_inverse=True)
    where = torch.full_like(chosen, len(features))  # the column of ones
    where[~free] = place
    coefficients = z[:size].view(shape)
    intercepts = z[size:] if len(z) > size else z.new_zeros(outputs)
    total = z.new_zeros(len(chosen), len(chosen))
    same = [(output == c).nonzero().squeeze(-1) for c in range(outputs)]
    for (columns, weights), scores in zip(
        design.columns(features), design.outputs(coefficients, intercepts), strict=True
    ):
        wide = torch.cat([columns, columns.new_ones(len(columns), 1)], 1)[:, where]
        v, u = link.bends(scores)
        for c, mine in enumerate(same):
            if len(mine):
                part = wide[:, mine]
                total[mine.unsqueeze(-1), mine] += part.T @ ((weights * v[:, c]).unsqueeze(-1) * part)
        if outputs > 1 and u.any():
            weighted = wide * u[:, output]
            total -= weighted.T @ (weights.unsqueeze(-1) * weighted)
    return total


def minimise_model(z: Tensor, gradient: Tensor, H: Tensor, penalty: Penalty, chosen: Tensor, goal: float) -> Tensor:
    """The minimiser of g'(u - z) + (u - z)'H(u - z)/2 + h(u) over the chosen coefficients, to |G(u)| <= goal.

    Accelerated proximal steps find which coefficients are 0, a linear system solves for the others.
    """
    L = float(torch.linalg.eigvalsh(H)[-1])
    step = 1 / L if L > 0 else 1.0
    start, g = z[chosen], gradient[chosen]

    def slope(u: Tensor) -> Tensor:
        return g + H @ (u - start)

    def value(u: Tensor) -> float:
        moved = u - start
        return float(g @ moved + 0.5 * moved @ (H @ moved) + penalty.value(z.index_copy(0, chosen, u)))

    def prox(u: Tensor) -> Tensor:
        return penalty.prox(z.index_copy(0, chosen, u), step)[chosen]

    u = start
    for _ in range(BURSTS):
        before, y, t = u, u, 1.0
        for _ in range(BURST):
            u = prox(y - step * slope(y))
            if (y - u) @ (u - before) > 0:  # going back: momentum begins anew
                y, t = before, 1.0
                u = prox(y - step * slope(y))
            after = (1 + math.sqrt(1 + 4 * t * t)) / 2
            y, before, t = u + (t - 1) / after * (u - before), u, after
        u = _solved(u, slope(u), H, penalty, z.index_copy(0, chosen, u), chosen, value)
        if float((u - prox(u - step * slope(u))).norm()) <= step * goal:
            break
    return u


def _solved(
    u: Tensor, slope: Tensor, H: Tensor, penalty: Penalty, x: Tensor, chosen: Tensor, value: Callable[[Tensor], float]
) -> Tensor:
    """A Newton step of the model in the coefficients that are not 0, up to the first that changes its sign."""
    mine = ((u != 0) | penalty.is_free(chosen)).nonzero().squeeze(-1)
    if not len(mine):
        return u
    first, second = penalty.bend(x, chosen[mine])
    matrix = H[mine.unsqueeze(-1), mine] + second
    matrix = matrix + 1e-14 * matrix.diagonal().max() * torch.eye(len(mine), dtype=matrix.dtype)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if failed:
        return u
    direction = -torch.cholesky_solve((slope[mine] + first).unsqueeze(-1), factor).squeeze(-1)
    crosses = ~penalty.is_free(chosen[mine]) if penalty.keeps_signs else torch.zeros_like(mine, dtype=torch.bool)
    now, length = value(u), 1.0
    for _ in range(10):
        moved = u[mine] + length * direction
        tried = u.index_copy(0, mine, torch.where(crosses & (moved * u[mine] <= 0), 0.0, moved))
        if value(tried) <= now:
            return tried
        length /= 4
    return u
