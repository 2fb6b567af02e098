"""A problem tried out on a few samples: what does not fit is told here, in a sentence, not in the middle of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedcef.core.errors import ProblemError
from fedcef.problems.accuracy import right_and_counted
from fedcef.problems.advice import advice, check_axes, check_modules
from fedcef.problems.buffers import Buffers, Statistics
from fedcef.problems.client_data import Samples
from fedcef.problems.copying import copied
from fedcef.problems.outputs import deciding

if TYPE_CHECKING:
    from fedcef.problems.problem import Problem

_CALIBRATION = 1000  # inputs by whose statistics a model is evaluated


def trainable_parameters(model: Any) -> dict[str, Tensor]:
    """The parameters of a module that are not frozen."""
    if not isinstance(model, nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise ProblemError(f"The model is {what}; it must be a torch.nn.Module, made and ready to be called.")
    check_modules(model)
    everything = dict(model.named_parameters())
    if lazy := [name for name, p in everything.items() if is_lazy(p)]:
        raise ProblemError(f"The model has parameters without a shape yet ({lazy[0]}); call it once on a batch before.")
    parameters = {name: p.detach() for name, p in everything.items() if p.requires_grad}
    if not parameters:
        why = ": all of them are frozen (requires_grad=False); make some trainable" if everything else ""
        raise ProblemError(f"The model has no parameters to train{why}.")
    kinds = {p.dtype for p in parameters.values()}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        if any(kind.is_complex for kind in kinds):
            raise ProblemError(
                f"The parameters must all be float32 or all float64, and are {found}; keep complex ones as two real "
                "numbers, torch.view_as_real, and call torch.view_as_complex in forward."
            )
        raise ProblemError(
            f"The parameters must all be float32 or all float64, and are {found}; call model.float() first, and "
            "compute in bfloat16 by precision = 'bfloat16_weights'."
        )
    return parameters


def check_loss(loss: Any) -> None:
    """A loss can be called, and has nothing to be trained: only the model's parameters are."""
    if isinstance(loss, type):
        raise ProblemError(f"The loss is the class {loss.__name__}; make one, {loss.__name__}().")
    if not callable(loss):
        raise ProblemError(f"The loss is a {type(loss).__name__}; it must be a function of outputs and targets.")
    own = [name for name, p in loss.named_parameters() if p.requires_grad] if isinstance(loss, nn.Module) else []
    if own:
        raise ProblemError(
            f"The loss has parameters of its own ({', '.join(own)}), which would not be trained; make them part of "
            "the model, or freeze them (requires_grad=False)."
        )


def try_out(problem: Problem, buffers: Buffers = "constant", calibration: Any = None) -> Problem:
    """Fail here, with a sentence, rather than in the middle of a run.

    Returns the problem as it is to be used: what becomes of its buffers is known, and samples that are read later are
    looked at then.
    """
    test = problem.test
    first = problem.client_samples(0, 2) if problem.num_clients else _first(test)
    problem = replace(problem, overwrites=_overwrites(problem, first.inputs))
    problem = replace(problem, statistics=Statistics.of(problem.model, buffers, first.inputs.clone()))
    problem = replace(problem, calibration=_calibration(problem, calibration))
    tried = problem
    if [*problem.model.buffers()]:  # which a pass may change, and the user's module stays as it is
        tried = replace(problem, model=problem.statistics.train(copied(problem.model, shares=True)))
    if len(first) == 1 and (problem.statistics.local or problem.statistics.averaged.names):
        first = first[torch.tensor([0, 0], device=first.inputs.device)]  # a batch is drawn with replacement
    found, value = _evaluate(tried, first, "client 0" if problem.num_clients else "the test set")
    if not isinstance(value, Tensor) or value.ndim != 0:
        what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}, not a tensor"
        raise ProblemError(f"The loss must return one number, the mean over the batch; it returned {what}.")
    with torch.random.fork_rng(devices=[]):  # what is tried from here on leaves the user's random numbers alone
        _check_gradient(tried, first)
        _check_axes(tried, first, found)
        _check_mean(problem, found, first.targets, value)
        data = problem.data.checked(_LabelCheck(problem, found))
        held_out = {"test": test, "validation": problem.validation}
        if any(held_out.values()):
            evaluated = replace(problem, model=copied(problem.model, shares=True).eval())
            for name, samples in held_out.items():
                if samples is not None:
                    outputs, _ = _evaluate(evaluated, _first(samples), f"the {name} set")
                    _check_held_out(problem, samples, outputs, f"The {name} set")
    return replace(problem, data=data, deciding=deciding(problem.loss, found, first.targets))


def _overwrites(problem: Problem, inputs: Tensor) -> bool:
    """Whether a pass writes to its inputs, as x /= 255 does; not if it fails before, which is told later."""
    before = inputs[[0, -1]]  # two, for batch normalisation
    given, model = before.clone(), copied(problem.model, shares=True)
    written = given._version  # which torch counts up, also where relu_ or clamp_ leaves these samples as they are
    with torch.no_grad(), torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
        for mode in (True, False):
            with suppress(Exception):
                problem.outputs(model.train(mode), problem.z0, given)
    return given._version != written or not torch.equal(given, before)


def _check_held_out(problem: Problem, samples: Samples, outputs: Any, name: str) -> None:
    _LabelCheck(problem, outputs)(samples, lambda row: name)
    if problem.classifies:
        right_and_counted(outputs, _first(samples).targets)


def _calibration(problem: Problem, given: Any) -> Tensor | None:
    """The inputs by whose statistics a model is evaluated: those given, the test set's first, or all clients' first."""
    if not problem.statistics.local:
        if given is not None:
            raise ProblemError("calibration is for a model with batch normalisation and buffers='local'; leave it out.")
        return None
    if given is None and problem.test is not None:
        given = problem.test[:_CALIBRATION].inputs
    if given is None:
        count = -(-_CALIBRATION // problem.num_clients)
        some = range(min(problem.num_clients, _CALIBRATION))
        given = torch.cat([problem.client_samples(client, count).inputs for client in some])
    like = problem.example.inputs
    if (
        not isinstance(given, Tensor)
        or given.dtype != like.dtype
        or given.shape[1:] != like.shape[1:]
        or len(given) < 2
    ):
        raise ProblemError(
            f"calibration must be a tensor with two or more inputs of shape {tuple(like.shape[1:])}, {like.dtype}."
        )
    return given


def _first(samples: Samples | None) -> Samples:
    assert samples is not None, "a problem has clients or a test set"
    return samples[:2]


def _evaluate(problem: Problem, batch: Samples, whose: str) -> tuple[Any, Any]:
    outputs = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch only warns of outputs and targets that broadcast by accident
            outputs = problem.outputs(problem.model, problem.z0, batch.inputs)
            return outputs, problem.loss(outputs, batch.targets)
    except Exception as error:
        if "None of the inputs have requires_grad" in str(error):
            raise ProblemError(
                "The model computes activations again in a way that finds no gradients here; call "
                "torch.utils.checkpoint with use_reentrant=False."
            ) from error
        packing, inputs = problem.packing, f"{tuple(batch.inputs.shape)} {batch.inputs.dtype}"
        said = "" if packing and outputs is None else advice(problem.model, batch, outputs)
        why = str(error).removesuffix(".") if said else str(error)
        raise ProblemError(
            f"The model or the loss cannot take a batch of {whose} (inputs {inputs if packing is None else packing}, "
            f"targets {tuple(batch.targets.shape)} {batch.targets.dtype}): {why}{said}"
        ) from error


def _check_axes(problem: Problem, batch: Samples, outputs: Any) -> None:
    """Sequences as long as there are classes: a shorter one tells on which axis these are."""
    targets = batch.targets
    if problem.packing or not isinstance(outputs, Tensor) or outputs.ndim != 3 or targets.ndim != 2:
        return
    if batch.inputs.shape == targets.shape and outputs.shape[1] == outputs.shape[2] == targets.shape[1]:
        shorter = None
        with torch.no_grad(), warnings.catch_warnings(), suppress(Exception):  # it may take one length alone
            warnings.simplefilter("ignore")
            shorter = problem.outputs(problem.model, problem.z0, batch.inputs[:, :-1])
        check_axes(outputs, shorter, targets)


def _check_gradient(problem: Problem, batch: Samples) -> None:
    """A loss that has left torch's arithmetic on the way has nothing to descend."""
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        outputs = problem.outputs(problem.model, problem.z0.detach().requires_grad_(), batch.inputs)
        value = problem.loss(outputs, batch.targets)
    if not value.requires_grad:
        raise ProblemError(
            "The loss does not depend on the model's parameters in a way that has a gradient; leave .item(), "
            ".detach(), argmax and torch.tensor() out of the model and the loss."
        )


def _check_mean(problem: Problem, outputs: Any, targets: Tensor, value: Tensor) -> None:
    """A sum over the batch doubles with the batch; what is no mean in another way cannot be told from here."""
    if not isinstance(outputs, Tensor) or len(outputs) != len(targets):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            twice = problem.loss(torch.cat([outputs, outputs]), torch.cat([targets, targets]))
    except Exception:  # a loss for batches of one length
        return
    value, twice = value.detach(), torch.as_tensor(twice).detach()
    if float(value) and abs(float(twice) / float(value) - 2) < 1e-3:
        raise ProblemError(
            "The loss doubles with the batch: it is a sum.  It must be the mean over the batch (reduction='mean')."
        )


class _LabelCheck:
    """Class numbers that the loss cannot take, and inputs that the model cannot, and whose they are.

    Labels that the loss ignores are let through.
    """

    def __init__(self, problem: Problem, outputs: Any) -> None:
        """`outputs` are the model's for a few samples, of any problem that is like this one."""
        self._problem = problem
        self._shape = tuple(outputs.shape) if isinstance(outputs, Tensor) and outputs.ndim >= 2 else None
        self._ignored: set[int] = set()
        self._taken: dict[int, tuple[int, int]] = {}  # of each whole-numbered input the values that the model takes

    def __call__(self, samples: Samples, whose: Callable[[int], str]) -> None:
        """Look at samples; whose(row) names the owner of a row."""
        self._look_at_labels(samples, whose)
        self._look_at_values(samples, whose)

    def _look_at_labels(self, samples: Samples, whose: Callable[[int], str]) -> None:
        targets = samples.targets
        if self._shape is None or targets.is_floating_point() or targets.is_cuda:
            return  # on a GPU, trying would end the process
        classes = self._shape[1]
        if self._shape[2:] != targets.shape[1:]:
            return
        strange = targets[(targets < 0) | (targets >= classes)].unique()  # type: ignore[no-untyped-call]
        for label in [label for label in strange.tolist() if label not in self._ignored][:8]:
            row = int((targets == label).reshape(len(targets), -1).any(1).nonzero()[0])
            try:
                self._try(samples[row : row + 1])
            except Exception as error:
                raise ProblemError(
                    f"{whose(row)} has the label {label}, but the model has {classes} outputs, for the labels 0 to "
                    f"{classes - 1}; number the classes from 0, or give the model more outputs."
                ) from error
            self._ignored.add(label)

    def _look_at_values(self, samples: Samples, whose: Callable[[int], str]) -> None:
        """Refuse whole numbers for which an embedding has no row."""
        packing = self._problem.packing
        for place, part in enumerate(packing.unpack(samples.inputs) if packing else [samples.inputs]):
            if part.is_cuda or part.is_floating_point() or part.is_complex() or part.dtype == torch.bool:
                continue  # on a GPU, trying would end the process
            values = part.reshape(len(part), -1)
            low, high = (int(values.min()), int(values.max())) if values.numel() else (0, 0)
            known = self._taken.get(place, (0, -1))
            for value in (high, low) if values.numel() and not known[0] <= low <= high <= known[1] else ():
                row = int((values == value).any(1).nonzero()[0])
                try:
                    self._outputs(samples[row : row + 1])
                except IndexError as error:
                    first, last = int(values[row].min()), int(values[row].max())
                    raise ProblemError(
                        f"{whose(row)} has inputs from {first} to {last}, which the model cannot take ({error}); "
                        "give nn.Embedding as many rows as there are values, from 0 on."
                    ) from error
                except Exception:  # of another kind, which the first samples tell
                    return
            self._taken[place] = min(low, known[0]), max(high, known[1])

    def _try(self, one: Samples) -> None:
        self._problem.loss(self._outputs(one), one.targets)

    def _outputs(self, one: Samples) -> Any:
        """Of one sample, by a copy of the model that draws no masks: others may compute at the same time."""
        problem = self._problem
        return problem.outputs(copied(problem.model, shares=True).eval(), problem.z0, one.inputs)
