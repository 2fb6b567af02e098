"""More rounds for a run that was begun with fewer, as if it had had them from the start.

That is possible where the first rounds do not depend on how many follow.  Some parts of a method do know: a schedule
that ends with the run, a budget that is spread over it.  Those are refused.
"""

from __future__ import annotations

from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import Auto
from fedcef.core.errors import RunError
from fedcef.core.training import Training
from fedcef.runs.folder import RunFolder
from fedcef.runs.reader import RunReader


def is_longer(folder: RunFolder, rounds: int) -> bool:
    """Whether the run in a folder is to have more rounds than it has; fewer are refused."""
    begun = rounds_of(folder, rounds)
    if rounds < begun:
        raise RunError(f"The run in {folder.path} has {begun} rounds; it can be made longer, but not {rounds} rounds.")
    return rounds > begun


def extend(folder: RunFolder, training: Training, algorithm: Algorithm) -> str:
    """Give the run in a folder the rounds that `training` has; `algorithm` is its method.

    A kill at any moment leaves a run that can be gone on with, of as many rounds as before or of as many as wanted.

    Returns:
        A sentence on it.
    """
    begun = rounds_of(folder, training.rounds)
    if knowing := counts_rounds(training, algorithm):
        raise RunError(
            f"The run in {folder.path} cannot be made longer: {knowing} goes by the number of rounds, so that the "
            f"first {begun} of {training.rounds} would be others; begin another run."
        )
    if RunReader(folder.path).summary.get("stopped_early"):
        raise RunError(
            f"The run in {folder.path} stopped early, and so would a longer one; begin another run, without [stop]."
        )
    folder.extend(training.rounds)
    return f"The run was made longer: it had {begun} rounds, and has {training.rounds}."


def counts_rounds(training: Training, algorithm: Algorithm) -> str:
    """What of a run is not the same whatever its number of rounds, in words; "" if nothing is."""
    rounds = training.rounds
    for name in ("local_schedule", "server_schedule"):
        schedule = getattr(training, name)
        if schedule.for_rounds(rounds) is not schedule:
            return f"{name} (unless it is given `rounds` of its own)"
    update = algorithm.local_update
    if update.for_steps(rounds * algorithm.local_steps) is not update:
        return "the schedule of local_update"
    if isinstance(algorithm.compressor, Auto):
        return "compressor auto"
    return "budget" if training.budget else ""


def rounds_of(folder: RunFolder, otherwise: int) -> int:
    """How many rounds the settings in a folder say, or `otherwise` where they say nothing."""
    return int(RunReader(folder.path).settings.get("rounds", otherwise))
