"""Copies of a module: every client trains one, and the user's own is never touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from fedcef.core.errors import ProblemError


def copied(model: nn.Module, shares: bool = False) -> nn.Module:
    """A copy of a module, which may have kept tensors of an earlier pass; these are copied without their graphs.

    With `shares` the values of frozen parameters are not copied but lie in one place for all copies: nothing that stays
    within this package writes to them.
    """
    memo: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    for module in model.modules():
        _without_graphs(vars(module).values(), memo, seen)
    for parameter in model.parameters() if shares else ():
        if not parameter.requires_grad and type(parameter) is nn.Parameter and not parameter._backward_hooks:
            memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    try:
        return deepcopy(model, memo)
    except Exception as error:  # whatever the module holds
        raise ProblemError(
            f"The model cannot be copied, as it must be for the clients to train it ({error}); keep locks, files, "
            "generators and the like out of the module."
        ) from error


def _without_graphs(values: Iterable[Any], memo: dict[int, Any], seen: dict[int, Any]) -> None:
    """Note what stands in a copy for tensors that were computed, which cannot be copied with their graphs.

    `seen` has by their id what was looked into, for it may hold itself, and the tensors, which live until then.
    """
    for value in values:
        if id(value) in seen:
            continue
        if isinstance(value, Tensor):
            if not value.is_leaf:
                seen[id(value)], memo[id(value)] = value, value.detach().clone()
        elif isinstance(value, Mapping | list | tuple):
            seen[id(value)] = value
            _without_graphs(value.values() if isinstance(value, Mapping) else value, memo, seen)
