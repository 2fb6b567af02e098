"""A problem: a model, a loss, every client's data, a regulariser and a start point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedcef.core.errors import ProblemError
from fedcef.core.layout import Layout
from fedcef.problems.assembling import read_all
from fedcef.problems.augment import CropFlip
from fedcef.problems.buffers import Buffers, Statistics, digest, untrained
from fedcef.problems.casting import in_types_of_the_model
from fedcef.problems.client_data import ClientData, PooledData, Samples
from fedcef.problems.copying import copied
from fedcef.problems.outputs import Deciding
from fedcef.problems.reading import Collate
from fedcef.problems.several import Packing, with_unpacking
from fedcef.problems.trial import check_loss, trainable_parameters, try_out
from fedcef.regularizers import Regularizer, Zero

__all__ = ["Loss", "Problem", "Samples"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""loss(outputs, targets): the mean over the batch."""


@dataclass(frozen=True, eq=False)
class Problem:
    """min over x of the mean over clients of f_i(x), plus h(x); f_i is the mean loss on client i's samples."""

    model: nn.Module
    loss: Loss
    data: ClientData
    """The clients' samples: one table in memory, or a source that reads a client when it is asked for."""
    test: Samples | None
    regularizer: Regularizer
    layout: Layout
    z0: Tensor  # (p,)
    truth: Tensor | None = None  # (p,): the parameters that made the data, where they are known
    augment: CropFlip | None = None  # what is done to the images of minibatches
    equal_sizes: bool = True
    """Whether all clients have equally many samples.  One client's part of a problem keeps what the whole one says, so
    that a deployed client computes in the simulator's way."""
    statistics: Statistics = Statistics()
    """The layers of the model with running statistics, and what becomes of them."""
    calibration: Tensor | None = None
    """Inputs by whose statistics the model is evaluated, where those are local."""
    validation: Samples | None = None
    """Samples beside the test set, on which a run is steered: when it stops, say."""
    classes: tuple[Any, ...] = ()
    """What class each number of a target stands for, where labels were words or other numbers than 0, 1, 2, …."""
    client_ids: tuple[Any, ...] = ()
    """Who each client is, where rows of a table were named by such ids."""
    packing: Packing | None = None
    """How several inputs of a sample lie in one table, if there are several; `packing.unpack` takes them apart."""
    notes: tuple[str, ...] = ()
    """What was changed in the data that were handed in."""
    deciding: Deciding = "sign"
    """How labels are told from outputs of which there is one for each target."""
    overwrites: bool = False
    """Whether the model changes its inputs in place, so that it must be given copies of the samples."""

    @classmethod
    def build(
        cls,
        model: nn.Module,
        loss: Loss,
        clients: Sequence[Any] | ClientData,
        test: Any = None,
        regularizer: Regularizer | None = None,
        augment: CropFlip | None = None,
        buffers: Buffers = "constant",
        calibration: Any = None,
        validation: Any = None,
        classes: Sequence[Any] | None = None,
        client_ids: Any = None,
        collate: Collate | None = None,
        live: bool | None = None,
    ) -> Problem:
        """A problem from a module and each client's data: an (inputs, targets) pair, or a map-style data set.

        The start point is the module's parameters as they are; frozen ones (requires_grad=False) and buffers that no
        pass changes are kept, and nobody sends them.  The module is copied, but for the values of frozen parameters.
        Without clients it is what the server of a deployment knows; then there must be a test set.

        Args:
            model: model(inputs), or model(*inputs) or model(**inputs) where a sample has several.
            loss: loss(outputs, targets), the mean over the batch.
            clients: A list of such data, which are copied into one table but for `live` ones, or a source of
                `fedcef.clients`, which reads a client when it is needed.
            test: Data to measure the model on.
            regularizer: h; None = no regulariser.
            augment: Changes the images of minibatches at random.
            buffers: What becomes of running statistics: "mean" averages and sends them with the parameters, "frozen"
                keeps them, and with "local" every batch has its own.
            calibration: Inputs by whose local statistics the model is evaluated; by default the test set's.
            validation: Data that are measured like the test set, and beside it.
            classes: The classes in their order, where labels are words and not all of them occur, or are read later.
            client_ids: Whose each row is, where `clients` is one pair of tables, or one data set, for all of them.
            collate: collate(samples) returns inputs and targets of a list of samples, where these are not alike.
            live: Whether a data set is asked for each sample that is drawn; by default one that may compute its samples
                anew, which is any but a `TensorDataset`.
        """
        parameters = trainable_parameters(model)
        check_loss(loss)
        if not isinstance(regularizer, Regularizer | None):
            raise ProblemError(f"The regulariser is {regularizer!r}; it must be an object such as L1(1e-4).")
        if not isinstance(clients, Iterable | Sized | ClientData):
            raise ProblemError(f"The clients are {clients!r}; give a list of one (inputs, targets) pair for each.")
        clients = clients if isinstance(clients, Sized | ClientData) else list(clients)
        nobody = not (clients.num_clients if isinstance(clients, ClientData) else len(clients))
        if nobody and test is None:
            raise ProblemError("The problem has no clients; give one (inputs, targets) pair or data set for each.")
        read = read_all(clients, (test, validation), classes, client_ids, collate, live)
        packing = read.clients.example.packing
        layout = Layout.of(parameters)
        problem = cls(
            model=with_unpacking(copied(model, shares=True), packing),
            loss=loss,
            data=read.clients,
            test=read.test,
            regularizer=(regularizer if regularizer is not None else Zero()).fit(layout),
            layout=layout,
            z0=layout.flatten(parameters).detach().clone(),
            augment=augment,
            equal_sizes=read.clients.equal_sizes,
            validation=read.validation,
            client_ids=read.client_ids,
            packing=packing,
        )
        problem, cast = in_types_of_the_model(problem, read.labels, read.notes)
        if augment is not None and problem.example.inputs.ndim != 4:
            raise ProblemError(
                "Only images (channels, height, width) can be cropped and mirrored; take augment = None."
            )
        return replace(try_out(problem, buffers, calibration), notes=tuple(cast.notes))

    @property
    def num_clients(self) -> int:
        """N, how many clients there are."""
        return self.data.num_clients

    @property
    def dim(self) -> int:
        """p, the number of parameters."""
        return self.layout.size

    @property
    def example(self) -> Samples:
        """A few samples, for their shapes and types; without samples, tables of length 0."""
        return self.data.example

    @property
    def classifies(self) -> bool:
        """Whether targets are class numbers, so that there is an accuracy."""
        return not self.example.targets.is_floating_point()

    @property
    def sizes(self) -> Tensor:
        """How many samples each client has, (N,); a source that learns it by reading is read through."""
        return self.data.sizes

    @property
    def train(self) -> Samples:
        """All clients' samples as one table, where they lie in one."""
        return self._pooled.table

    @property
    def starts(self) -> Tensor:
        """Where in that table each client's samples begin, (N,)."""
        return self._pooled.starts

    @property
    def _pooled(self) -> PooledData:
        if not isinstance(self.data, PooledData):
            raise ProblemError("The clients' samples do not lie in one table; ask for those of some by problem.data.")
        return self.data

    def client_samples(self, client: int, count: int | None = None) -> Samples:
        """A client's samples, or the first `count` of them."""
        return self.data.samples(client, count)

    def outputs(self, model: nn.Module, x: Tensor, inputs: Tensor) -> Tensor:
        """The model's outputs with the parameters x, (p,)."""
        return functional_call(model, self.layout.unflatten(x), (self.given(inputs),))  # type: ignore[no-any-return]

    def given(self, inputs: Tensor) -> Tensor:
        """What the model is given of samples: themselves, or a copy if it changes it."""
        return inputs.clone() if self.overwrites else inputs

    def training_pass(self, model: nn.Module, x: Tensor, inputs: Tensor, statistics: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of a copy in training mode that begins with these statistics, (q,), and those that it leaves."""
        given = self.layout.unflatten(x) | self.statistics.tensors(model, statistics)
        outputs = functional_call(model, given, (self.given(inputs),))  # which replaces buffers in `given`
        return outputs, self.statistics.flat(given, statistics)

    @property
    def running_statistics(self) -> Tensor:
        """Those that the run begins with where they are averaged, (q,); empty otherwise."""
        return self.statistics.flat(dict(self.model.named_buffers()), self.z0)

    @property
    def other_types(self) -> tuple[str, ...]:
        """The floating-point types of frozen parameters that are not the type of what is trained."""
        kinds = {p.dtype for p in self.model.parameters() if p.is_floating_point()} - {self.z0.dtype}
        return tuple(sorted(str(kind).removeprefix("torch.") for kind in kinds))

    @property
    def base_digest(self) -> bytes:
        """Tells apart models with other frozen parameters or buffers; empty if there are none."""
        return digest(self.statistics.constants(self.model))

    def calibrate(self, model: nn.Module, x: Tensor, inputs: Tensor | None = None) -> None:
        """Give a copy of the model the statistics of these inputs, or of `calibration`, where they are local."""
        inputs = self.calibration if inputs is None else inputs
        if inputs is not None:
            self.statistics.calibrate(model, self.layout.unflatten(x.detach()), self.given(inputs))

    def state_dict(
        self, x: Tensor, inputs: Tensor | None = None, statistics: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The model with the parameters x, (p,), as `load_state_dict` takes it: copies by name, tied ones under each.

        Frozen parameters and buffers are in it; `layout.names` are the names of what was trained.  Local statistics are
        those of `inputs`, such as a client's own, or of `calibration`; averaged ones are `statistics`, (q,), by default
        those that the run begins with.

        >>> problem.model.load_state_dict(problem.state_dict(problem.z0))
        """
        tensors = self.layout.unflatten(x.detach())
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        everything = self.model.named_parameters(remove_duplicate=False)
        trained = {n: tensors[names[id(p)]].clone() for n, p in everything if p.requires_grad}
        model = self.model
        if self.statistics.local:
            model = copied(model, shares=True).eval()
            self.calibrate(model, x.to(self.z0.device), inputs)
        elif statistics is not None:
            model = copied(model, shares=True)
            self.statistics.put(model, statistics.to(self.z0.device))
        return trained | {name: kept.to(x.device, copy=True) for name, kept in untrained(model).items()}

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Problem:
        """The same problem on another device, or computed in another floating type."""
        if dtype is not None and dtype != self.z0.dtype and (others := self.other_types):
            raise ProblemError(
                f"The model has frozen parameters of another type ({', '.join(others)}) than what is trained, so that "
                "it cannot be computed in another precision; leave precision at its default, or change their type."
            )
        loss = self.loss  # class weights move with the problem
        if isinstance(loss, nn.Module) and [*loss.parameters(), *loss.buffers()]:
            loss = deepcopy(loss).to(device, dtype)
        looked_at = self.calibration
        return replace(
            self,
            model=copied(self.model, shares=True).to(device, dtype),
            loss=loss,
            data=self.data.to(device, dtype),
            test=None if self.test is None else self.test.to(device, dtype),
            validation=None if self.validation is None else self.validation.to(device, dtype),
            z0=self.z0.to(device, dtype),
            truth=None if self.truth is None else self.truth.to(device, dtype),
            calibration=None if looked_at is None else Samples(looked_at, looked_at).to(device, dtype).inputs,
        )
