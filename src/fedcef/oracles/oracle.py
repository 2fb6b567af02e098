"""Gradient oracles: the minibatch gradients of all clients behind one signature, `GradientOracle`.

Four ways to compute the same thing: `loop` goes through the clients, `stacked` evaluates all of them in one call,
`batched` does so with kernels written for convolutional networks on a GPU, `layered` with derivatives written out for
linear layers, or goes through the clients with those of convolutional networks on a CPU.
"""

from __future__ import annotations

from fedcef.core.errors import ConfigError
from fedcef.core.training import Training
from fedcef.oracles.batched import Batched, batched_network
from fedcef.oracles.convolved import Convolved
from fedcef.oracles.dropout import draws_unseen, has_dropout
from fedcef.oracles.gradient_oracle import GradientOracle, convolves
from fedcef.oracles.large_models import attends
from fedcef.oracles.layered import Layered
from fedcef.oracles.loop import ClientLoop
from fedcef.oracles.stacked import Stacked
from fedcef.problems.problem import Problem

__all__ = ["ORACLES", "GradientOracle", "make_oracle"]

ORACLES: dict[str, type[GradientOracle]] = {
    "loop": ClientLoop,
    "stacked": Stacked,
    "batched": Batched,
    "layered": Layered,
    "convolved": Convolved,  # what "layered" is for a model that convolves
}


def make_oracle(problem: Problem, training: Training) -> GradientOracle:
    """The oracle that `training.oracle` names, or for "auto" the fastest for this kind of model and device.

    The choice never depends on a measurement: a run must not change from one start to the next.  It depends on the
    model, the device, the options and, for exact gradients (batch_size = 0), on whether all clients are equally large.
    A deployed client therefore chooses as the simulator does, and gives its bits on the same kind of device.  Where it
    cannot know the others' sizes (its problem is a function of the user's own, asked for one client) and batch_size is
    0, `oracle` must be named for that.
    """
    kind: str = training.oracle
    of_a_loop = "micro_batch" if training.micro_batch else "compile" if training.compile else ""
    if of_a_loop and kind not in ("auto", "loop"):
        raise ConfigError(f"{of_a_loop} is for clients that are computed one after the other; take oracle = 'loop'.")
    if kind == "auto" and (of_a_loop or attends(problem.model)):
        kind = "loop"
    if kind == "auto":
        one_by_one = convolves(problem.model) or has_dropout(problem.model)
        one_by_one |= problem.statistics.reads_back(problem.model)
        together = training.batch_size > 0 or problem.equal_sizes
        # masks that no layer draws cannot be given to a call for all clients
        kind = "stacked" if together and not one_by_one and not draws_unseen(problem) else "loop"
        network = batched_network(problem, training) if convolves(problem.model) else None
        if network is not None and (network.usual or network.drops):  # others are computed as they always were
            kind = "batched"
    elif kind == "layered" and convolves(problem.model):
        kind = "convolved"
    return ORACLES[kind](problem, training)
