"""Modules, data and losses that cannot be trained as they are, and what to do about each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedcef.core.errors import ProblemError
from fedcef.problems.client_data import Samples

_CHANNELS = (1, 3, 4)  # of images


def check_modules(model: nn.Module) -> None:
    """Refuse modules whose parameters cannot be lent to them, or that change these as they run."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise ProblemError(f"The model is wrapped in {type(model).__name__}; give what is in it, model.module.")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and any(p.requires_grad for p in module.parameters()):
            raise ProblemError(
                "The model is compiled by torch.jit, so that clients cannot have parameters of their own; give the "
                "module that was compiled."
            )
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag) or not module.weight.requires_grad:
            continue
        layer = f"The layer {name or type(module).__name__}"
        if module.max_norm is not None:
            raise ProblemError(f"{layer} has max_norm, which changes its weights as it runs; leave max_norm out.")
        if module.sparse:
            raise ProblemError(f"{layer} has sparse gradients, and a step needs all of them; give it sparse=False.")


def check_axes(outputs: Any, shorter: Any, targets: Tensor) -> None:
    """Refuse positions where classes must be, which the shapes hide if there are equally many.

    Args:
        outputs: Of sequences that are as long as there are classes.
        shorter: Of the same sequences without their last entry, if the model takes them.
        targets: One for each entry.
    """
    length = targets.shape[1]
    if isinstance(shorter, Tensor) and shorter.shape[1:] == (length - 1, length) and outputs.shape[1] == length:
        raise ProblemError(
            f"The model's outputs have the positions on axis 1 and the {length} classes on axis 2; the loss takes "
            "classes on axis 1: let the model return outputs.transpose(1, 2)."
        )


def advice(model: nn.Module, batch: Samples, outputs: Any) -> str:
    """What to do where a model or a loss fails, as the end of a sentence; "" if nothing is known.

    Args:
        model: The model.
        batch: What failed.
        outputs: The model's, or None if it failed itself.
    """
    inputs, targets = batch.inputs, batch.targets
    if isinstance(outputs, Tensor):
        if targets.shape[1:] == (1,) and outputs.ndim == 2 and outputs.shape[1] > 1:
            return "; take the targets' last axis off, targets.squeeze(1), or frame['y'] in place of frame[['y']]"
        if targets.ndim == 1 and outputs.shape == (len(targets), 1):
            return "; end the model with nn.Flatten(0), so that it returns one number for each sample"
        return ""
    if outputs is not None:
        return (
            f"; the model returns a {type(outputs).__name__}: wrap it in a module that returns one tensor, such as "
            "model(inputs).logits, or give a loss that takes it"
        )
    if not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return ""
    if inputs.ndim == 4 and inputs.shape[3] in _CHANNELS and inputs.shape[1] not in _CHANNELS:
        return "; images must be (channels, height, width): move the channels to axis 1, inputs.permute(0, 3, 1, 2)"
    if inputs.ndim == 3 and inputs.shape[1] not in _CHANNELS:
        return "; images must be (channels, height, width): add an axis for the channels, inputs[:, None]"
    return ""
