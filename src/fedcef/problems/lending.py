"""Parameters that are lent to a module for as long as some work takes.

`functional_call` lends them for a pass alone.  Layers that compute their activations again on the way back
(torch.utils.checkpoint, `gradient_checkpointing_enable` of transformers) would do so with the module's own, and
gradients would be wrong without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor, nn
from torch.func import functional_call

Result = TypeVar("Result")


class _Borrower(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[], Result]) -> Result:
        return work()


def lend(model: nn.Module, parameters: Mapping[str, Tensor], work: Callable[[], Result]) -> Result:
    """What the work results in that is done while the model has these parameters."""
    lent = {f"model.{name}": parameter for name, parameter in parameters.items()}
    result: Result = functional_call(_Borrower(model), lent, (work,))
    return result
