"""The interface of gradient oracles: which samples a round's gradients are taken on, and clipping."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from fedcef.algorithms.algorithm import Oracle
from fedcef.core.errors import ConfigError
from fedcef.core.round import Round
from fedcef.core.training import Training
from fedcef.oracles.large_models import check_large, trained_model
from fedcef.problems.client_data import Samples
from fedcef.problems.copying import copied
from fedcef.problems.draws import epochs
from fedcef.problems.problem import Problem


class GradientOracle(ABC):
    """Makes the oracle of each round."""

    captures: bool
    """Whether gradients leave the host alone, so that a CUDA graph can hold them."""

    def __init__(self, problem: Problem, training: Training) -> None:
        if problem.augment is not None and not training.batch_size:
            raise ConfigError(
                "Images are changed at random as minibatches are drawn; with batch_size = 0 take augment = 'none'."
            )
        if training.batches == "epochs" and not training.batch_size:
            raise ConfigError(
                "With batch_size = 0 every step takes all samples; give a batch_size, or leave batches = 'epochs' out."
            )
        statistics = problem.statistics
        if (statistics.local or statistics.averaged.names) and training.batch_size == 1:
            raise ConfigError(
                f"With buffers = {'local' if statistics.local else 'mean'!r} batch normalisation takes the statistics "
                "of each batch; take batch_size 2 or more, or 0 for all samples."
            )
        if (statistics.local or statistics.averaged.names) and not training.batch_size:
            _check_single(problem)
        check_large(problem, training)
        self.problem, self.model = problem, trained_model(problem, training)
        self.captures = problem.data.captures and not statistics.reads_back(problem.model)
        self.batch_size = training.batch_size
        self.in_epochs = training.batches == "epochs"
        self.clip_norm = training.clip_norm or None
        self.precision = training.precision
        self.parameter_type = torch.bfloat16 if self.precision == "bfloat16_weights" else problem.z0.dtype
        """Of what the model is given."""

    def for_round(
        self, round_: Round, steps: int, rows: Tensor | None = None, statistics: Tensor | None = None
    ) -> Oracle:
        """The oracle of the round's clients for its `steps` local steps.

        Args:
            round_: The round; who takes part in it, and what these clients draw.
            steps: How many local steps there are.
            rows: Which clients of the problem these are, where that is not their number: a deployed client has a
                problem with itself alone, and is row 0 of it.
            statistics: Those that the clients begin with, (q,), where they are averaged; by default the model's own.

        Returns:
            oracle(x, k): the gradients (S, p) on the k-th batches, at the clients' own points (S, p) or at one (p,).
            Where statistics are averaged, `oracle.statistics` are the clients' so far, (S, q).
        """
        clients = round_.clients if rows is None else rows
        batch = self.batches(round_, clients, steps)
        if self.problem.statistics.averaged.names:
            start = self.problem.running_statistics if statistics is None else statistics
            return _Moving(self, clients, batch, round_, start.expand(len(clients), -1))

        def oracle(x: Tensor, k: int) -> Tensor:
            return self.gradients(x.expand(len(clients), -1), clients, batch(k), round_, k)

        return oracle

    def batches(self, round_: Round, clients: Tensor, steps: int) -> Callable[[int], Samples | None]:
        """batch(k): the clients' k-th minibatches, (S, B, ...); None stands for all that each of them has."""
        size, augment, data = self.batch_size, self.problem.augment, self.problem.data
        if not size:
            return lambda k: None
        if self.in_epochs:
            rows = epochs(round_.batches.view(-1), data.sizes_of(clients), steps * size).view(-1, steps, size)
        else:
            rows = data.draw(clients, round_.batches, steps, size)
        take = data.batches(clients, rows)
        if augment is None:
            return take
        changes = augment.draw(round_.augmentation, steps * size).view(len(clients), steps, size)

        def changed(k: int) -> Samples:
            batch = take(k)
            images = augment.apply(batch.inputs.flatten(0, 1), changes[:, k].flatten())
            return Samples(images.reshape(len(clients), size, *images.shape[1:]), batch.targets)

        return changed

    @abstractmethod
    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int) -> Tensor:
        """Every client's clipped gradient at its own row of x, on its own part of the batch or on all that it has."""

    def moving(
        self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int, statistics: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same for clients with these running statistics, (S, q), and what their passes make of those."""
        raise ConfigError("Running statistics are averaged with oracle = 'loop' or 'stacked' only; take one of these.")

    def loss(self, model: nn.Module, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """One client's loss at x, (p,), computed in the precision that was chosen."""
        if self.precision == "bfloat16_weights":
            inputs = inputs.to(self.parameter_type) if inputs.is_floating_point() else inputs
            return self.problem.loss(self.problem.outputs(model, x.to(self.parameter_type), inputs).float(), targets)
        cheaper = torch.autocast(x.device.type, torch.bfloat16) if self.precision == "bfloat16" else nullcontext()
        with cheaper:
            return self.problem.loss(self.problem.outputs(model, x, inputs), targets)

    def moving_loss(
        self, model: nn.Module, x: Tensor, inputs: Tensor, targets: Tensor, statistics: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same for a client with these running statistics, (q,), and what the pass makes of those."""
        cheaper = torch.autocast(x.device.type, torch.bfloat16) if self.precision == "bfloat16" else nullcontext()
        with cheaper:
            outputs, moved = self.problem.training_pass(model, x, inputs, statistics)
            return self.problem.loss(outputs, targets), moved

    def clipped(self, g: Tensor) -> Tensor:
        """The gradients scaled down to at most `clip_norm`, where there is one."""
        return g if self.clip_norm is None else clip(g, self.clip_norm)


class _Moving:
    """The oracle of a round in which every gradient moves the clients' running statistics on."""

    def __init__(
        self,
        gradients: GradientOracle,
        clients: Tensor,
        batch: Callable[[int], Samples | None],
        round_: Round,
        statistics: Tensor,
    ) -> None:
        self._gradients, self._clients, self._batch, self._round = gradients, clients, batch, round_
        self.statistics = statistics

    def __call__(self, x: Tensor, k: int) -> Tensor:
        x = x.expand(len(self._clients), -1)
        g, self.statistics = self._gradients.moving(x, self._clients, self._batch(k), self._round, k, self.statistics)
        return g


def _check_single(problem: Problem) -> None:
    """Refuse clients of which all samples are one, where batch normalisation takes the statistics of these."""
    sizes = problem.sizes
    if not problem.num_clients or int(sizes.min()) > 1:
        return
    client, model = int(sizes.argmin()), problem.statistics.train(copied(problem.model, shares=True))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            problem.outputs(model, problem.z0, problem.client_samples(client).inputs)
    except ValueError as error:  # where images have several pixels, one is enough
        raise ConfigError(
            f"With batch_size = 0 a step of client {client} takes its only sample, of which batch normalisation has no "
            "statistics; give a batch_size, leave the client out, or take buffers = 'frozen' or fedcef.group_norm."
        ) from error


def clip(g: Tensor, norm: float) -> Tensor:
    """Each gradient scaled down to at most the given norm."""
    return g * torch.clamp(norm / torch.linalg.vector_norm(g, dim=-1, keepdim=True), max=1.0)


def convolves(model: nn.Module) -> bool:
    """Whether the model has convolutions, which one call for all clients makes slower."""
    return any(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules())
