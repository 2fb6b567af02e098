"""What large models need: parameters in bfloat16, kernels by torch.compile, and to be told from models that stack."""

from __future__ import annotations

import torch
from torch import nn

from fedcef.core.errors import ConfigError
from fedcef.core.training import Training
from fedcef.problems.copying import copied
from fedcef.problems.problem import Problem


def attends(model: nn.Module) -> bool:
    """Whether it has attention or recurrent layers, for which there are no kernels over several clients' weights.

    Attention is a function, and the modules around it are everybody's own; they are known by their names.
    """
    return any(
        isinstance(module, nn.RNNBase | nn.RNNCellBase) or "attention" in type(module).__name__.lower()
        for module in model.modules()
    )


def check_large(problem: Problem, training: Training) -> None:
    """Refuse ways to compute a large model that its running statistics do not allow."""
    statistics = problem.statistics
    if training.precision == "bfloat16_weights" and (statistics.layers or statistics.averaged.names):
        raise ConfigError(
            "precision = 'bfloat16_weights' is for models without running statistics, which need more digits; take "
            "precision = 'bfloat16'."
        )
    if training.precision == "bfloat16_weights" and problem.other_types:
        raise ConfigError(
            "precision = 'bfloat16_weights' changes the type of frozen parameters, which are "
            f"{', '.join(problem.other_types)} here on purpose; leave precision at its default."
        )
    if training.micro_batch and (statistics.local or statistics.averaged.names):
        raise ConfigError(
            "With micro_batch batch normalisation would see a part of the batch at a time, so that gradients are "
            "others; leave it out, or take buffers = 'frozen'."
        )


def trained_model(problem: Problem, training: Training) -> nn.Module:
    """The model of which oracles train copies: what is not trained has the type in which it is computed, too.

    Buffers stay as they are: tables of positions need their digits.
    """
    if training.precision != "bfloat16_weights":
        return problem.model
    model = copied(problem.model, shares=True)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(torch.bfloat16)
    return model


def compile_blocks(model: nn.Module) -> None:
    """Let torch.compile make kernels for the model, in place, as it is first run.

    The blocks of a list are compiled one by one: those that are alike share their kernels, so that a deep network takes
    no longer than a block.  A model without such lists is compiled as a whole.
    """
    blocks = [block for layers in model.modules() if isinstance(layers, nn.ModuleList) for block in layers]
    for module in blocks or [model]:
        module.compile(dynamic=False)
