"""How outputs are read where there is one for each target, which shapes do not tell, and which targets do not count.

Such outputs are scores, of which the sign decides; or probabilities, as after a sigmoid with `nn.BCELoss`, which are
compared with 0.5; or, where the loss is a cross-entropy for one-hot targets, scores of which the largest one decides.
The loss knows which: it is tried on a few other outputs.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from functools import partial
from math import isclose
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from fedcef.problems.accuracy import IGNORED

if TYPE_CHECKING:
    from fedcef.problems.problem import Problem

Deciding = Literal["sign", "half", "largest"]
"""What decides of outputs, one for each target: their sign, whether they are above 0.5, or the largest on axis 1."""


def deciding(loss: Any, outputs: Any, targets: Tensor) -> Deciding:
    """What decides of such outputs, by the values that the loss has for others."""
    if not isinstance(outputs, Tensor) or outputs.numel() != targets.numel() or not len(outputs):
        return "sign"
    if isinstance(loss, nn.Module) and any(tensor.is_cuda for tensor in loss.state_dict().values()):
        loss = deepcopy(loss).cpu()  # on a GPU, an output that is refused would end the process
    outputs, targets = outputs.detach().cpu(), targets.cpu()
    here = _value(loss, outputs, targets)
    if here is None:
        return "sign"
    if _value(loss, torch.full_like(outputs, -1.0), targets) is None:
        return "half"
    if not targets.is_floating_point() or outputs.shape != targets.shape or outputs.shape[1:].numel() < 2:
        return "sign"
    first = torch.zeros_like(outputs)
    first.select(1, 0).fill_(1.0)
    together, alone = (_value(loss, outputs + shift, targets) for shift in (torch.ones_like(outputs), first))
    return "largest" if isclose(together or 0.0, here, rel_tol=1e-4) and alone != here else "sign"


def unwrapped(loss: Any) -> tuple[Any, dict[str, Any]]:
    """What is in a `partial`, or in one of another, and the options that these fix, by name or place."""
    options: dict[str, Any] = {}
    while isinstance(loss, partial):
        options = {**loss.keywords, **{str(place): value for place, value in enumerate(loss.args)}, **options}
        loss = loss.func
    return loss, options


def ignored_by(problem: Problem) -> int:
    """The label that a problem's loss passes over."""
    loss, options = unwrapped(problem.loss)
    return int(options.get("ignore_index", getattr(loss, "ignore_index", IGNORED)))


def scores(problem: Problem, outputs: Tensor) -> Tensor:
    """Outputs of which the sign decides, where there is one for each target."""
    return outputs - 0.5 if problem.deciding == "half" else outputs


def as_classes(problem: Problem, outputs: Tensor, targets: Tensor) -> Tensor:
    """Targets with one-hot ones as class numbers, and those that the loss ignores as what every measure ignores."""
    if problem.deciding == "largest" and outputs.shape == targets.shape:
        return targets.argmax(1)
    ignored = ignored_by(problem)
    if targets.is_floating_point() or ignored == IGNORED:
        return targets
    return torch.where(targets == ignored, IGNORED, targets)


def _value(loss: Any, outputs: Tensor, targets: Tensor) -> float | None:
    """The loss, if it takes these outputs and is a finite number."""
    with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = float(loss(outputs, targets))
        except Exception:  # whatever the user's loss says to such outputs
            return None
    return value if abs(value) < float("inf") else None
