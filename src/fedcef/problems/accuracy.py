"""How many targets a model's outputs get right.

Outputs have their classes on axis 1, as torch's cross_entropy has them: (B, C, …) for targets (B, …); or there is one
output for each target, and its sign tells two classes apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.core.errors import ProblemError

IGNORED = -100  # the label that torch's losses pass over unless they are told another


def right_and_counted(outputs: Tensor, targets: Tensor, ignore_index: int = IGNORED) -> tuple[Tensor, Tensor]:
    """Which targets are predicted, and which are there to be predicted: two tables of truth values of one shape.

    A negative class or `ignore_index` is not there to be predicted, nor is a class without an output, which only a loss
    that ignores it takes.
    """
    if not isinstance(outputs, Tensor):
        raise ProblemError(
            f"There is no accuracy of a {type(outputs).__name__}: with a test set the model must return one tensor; "
            "wrap it in a module that returns its scores, such as model(inputs).logits, or leave the test set out."
        )
    if outputs.numel() == targets.numel():
        return (outputs.reshape(targets.shape) > 0) == (targets > 0), targets != ignore_index
    fits = outputs.ndim >= 2 and outputs.shape[:1] + outputs.shape[2:] in (targets.shape, targets.shape[:-1])
    if not fits or outputs.numel() != targets.numel() * outputs.shape[1]:
        raise ProblemError(
            f"There is no accuracy of outputs {tuple(outputs.shape)} for targets {tuple(targets.shape)}: outputs must "
            "be (batch, classes, …) for targets (batch, …), as torch's cross_entropy has them, or one for each target; "
            "let the model put its classes on axis 1, or leave the test set out."
        )
    predicted = outputs.argmax(1)
    targets = targets.reshape(predicted.shape)
    return predicted == targets, (targets >= 0) & (targets < outputs.shape[1]) & (targets != ignore_index)


def balanced_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over the classes that occur of the share of their samples that are predicted: classes count alike."""
    right, counted = right_and_counted(outputs, targets)
    classes = targets.reshape(right.shape)
    labels = classes[counted].unique()  # type: ignore[no-untyped-call]
    return torch.stack([right[classes == label].double().mean() for label in labels]).mean()
