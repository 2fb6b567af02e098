"""A run with a target accuracy: where it stops, and what it does if it will not get there.

Every evaluation is heard.  At the target the run stops.  From the middle on, every eighth of the rounds, the gain since
the last look is taken to go on as it is, which is generous, for curves flatten; if even so the target is missed, all
ratios go up by √2.  With a budget nothing is raised: the budget says what can be spent.  A run that ends short of its
target says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedcef.core.amounts import format_bytes
from fedcef.simulation.choosing import Chooser
from fedcef.simulation.spending import Heard, Spending

LOOKS = 8
"""Into so many parts a run is divided; it looks at its trend at the end of each of the later half's."""


def is_over(spending: Spending | None, target: float, rounds: int) -> bool:
    """Whether the accuracy heard last is at the target, or a budget was planned for no more than so many rounds."""
    if spending is not None and 0 < spending.ends <= rounds:
        return True
    return bool(target and spending is not None and spending.heard and spending.heard.accuracy >= target)


def hear(chooser: Chooser, spending: Spending, record: Mapping[str, Any]) -> tuple[Spending, str]:
    """What the run makes of the record of a round, and what is to be said; hearing the same again changes nothing."""
    round_, accuracy, before = int(record["round"]), record.get("accuracy"), spending.heard
    if not chooser.target or accuracy is None or (before and before.round >= round_):
        return spending, ""
    heard, rounds = Heard(round_, float(accuracy)), chooser.engine.rounds.training.rounds
    sent = format_bytes(record["wire_up_bytes"] + record["wire_down_bytes"])
    if accuracy >= chooser.target:
        reached = f"Round {round_}: the accuracy is {accuracy:.4f}, the target was {chooser.target:g}; it took {sent}."
        return replace(spending, heard=heard), reached
    missed = ""
    if round_ >= (spending.ends or rounds):
        missed = f"Round {round_}: the run ends with an accuracy of {accuracy:.4f}, short of the target, "
        missed += f"{chooser.target:g}; it took {sent}."
    part = rounds / LOOKS
    if chooser.engine.rounds.training.budget or round_ < rounds / 2 - part or (before and round_ < before.round + part):
        return spending, missed
    spending = replace(spending, heard=heard)
    if before is None:
        return spending, missed
    forecast = accuracy + (accuracy - before.accuracy) * (rounds - round_) / (round_ - before.round)
    levels = chooser.spender(spending).levels
    if forecast >= chooser.target or round_ == rounds or spending.level == len(levels) - 1:
        return spending, missed
    raised = levels[spending.level + 1]
    down = f", down {raised.down_ratio:.3g}" if raised.down_ratio is not None else ""
    said = (
        f"Round {round_}: the accuracy would be {forecast:.4f} at the end, below the target of {chooser.target:g}; the "
        f"ratio is now {raised.up_ratio:.3g}{down}."
    )
    return replace(spending, level=spending.level + 1), said
