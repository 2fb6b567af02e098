"""Problems of data sets that are published client by client: `leaf` and `tff`, from files that the user has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedcef.core.errors import ConfigError, DataError
from fedcef.core.ranges import Count, NotNegative
from fedcef.problems.client_data import PooledData, Samples
from fedcef.problems.data.federated_files import FORMATS, Examples, FederatedFiles
from fedcef.problems.problem import Problem
from fedcef.problems.source import ProblemSource, ShareOfTest, buffers_of, seeded_model, set_aside
from fedcef.problems.text.loss import next_token_loss
from fedcef.problems.text.tokens import ByteTokens, Tokens, find_tokens
from fedcef.problems.text.windows import TextData, Windows


@dataclass(frozen=True, kw_only=True)
class Federated(ProblemSource):
    """FEMNIST, Shakespeare or StackOverflow in published files: images with classes, or text; clients are people."""

    name: str
    path: str = ""
    """The folder: of LEAF, the one with `train` and `test` in it; of TFF, the one with the two .h5 files."""
    classes: NotNegative = 0
    """How many classes there are; 0 = as many as occur."""
    shape: list[Count] = field(default_factory=list)
    """Of an input; by default 784 numbers are an image (1, 28, 28), and others stay as they are."""
    context: Count = 80
    """How many tokens a window of text has; LEAF's text comes in windows."""
    tokenizer: str = "bytes"
    """"bytes", the file of a Hugging Face tokenizer, or its name on the hub; LEAF's text is read as bytes."""
    windows: Windows = "drawn"
    """Whether minibatches are windows of text that begin anywhere, or those into which it is cut."""
    test_windows: NotNegative = 256
    """How many windows of text the test set has, spread over all clients'; 0 = all."""
    validation_share: ShareOfTest | None = None
    """How much of the test set is set aside as the validation set, by which a run may be steered; nothing = none."""

    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        """The problem of the first people in the order of their names; the test samples of all are the test set."""
        if not self.path:
            raise ConfigError(f"data.path is missing; it must be the folder with the files of {self.name}.")
        folder = Path(self.path).expanduser()
        train, test = (FORMATS[self.name](folder, part) for part in ("train", "test"))
        if not train.names:
            raise _too_many(num_clients, 0)
        kind = self._of_text if isinstance(train.read(train.names[0]), list) else self._of_classes
        return kind(train, test, num_clients, seed, model)

    def _of_classes(
        self, train: FederatedFiles, test: FederatedFiles, num_clients: int, seed: int, model: dict[str, Any]
    ) -> Problem:
        if len(train.names) < num_clients:
            raise _too_many(num_clients, len(train.names))
        clients = PooledData.of([self._shaped(train.read(name)) for name in train.names[:num_clients]])
        tested = PooledData.of([self._shaped(test.read(name)) for name in test.names]).table
        largest = max(int(clients.table.targets.max()), int(tested.targets.max()))
        shape = tuple(clients.table.inputs.shape[1:])
        kept, validation = set_aside(tested, self.validation_share)
        return Problem.build(
            seeded_model(model, shape, self.classes or largest + 1, seed),
            nn.functional.cross_entropy,
            clients=clients,
            test=kept,
            validation=validation,
            buffers=buffers_of(model),
        )

    def _shaped(self, examples: Examples) -> Samples:
        if not isinstance(examples, Samples):
            raise DataError("Some clients have text and others have classes; a data set must be of one kind.")
        inputs = examples.inputs
        shape = self.shape or ([1, 28, 28] if inputs.shape[1:] == (784,) else list(inputs.shape[1:]))
        if prod(shape) != inputs[0].numel():
            raise ConfigError(f"data.shape is {shape}; an input has {inputs[0].numel()} numbers.")
        return Samples(inputs.reshape(-1, *shape), examples.targets)

    def _of_text(
        self, train: FederatedFiles, test: FederatedFiles, num_clients: int, seed: int, model: dict[str, Any]
    ) -> Problem:
        """People with less text than a window are left out."""
        whole = self.name == "leaf"
        tokens: Tokens = ByteTokens() if whole else find_tokens(self.tokenizer)
        context = len(_texts(train, train.names[0])[0]) - 1 if whole else self.context
        parts: list[Tensor] = []
        for name in train.names:
            part = _windows(name, _texts(train, name), context) if whole else tokens.encode(_texts(train, name))
            parts += [part] if len(part) > context else []
            if len(parts) == num_clients:
                break
        else:
            raise _too_many(num_clients, len(parts))
        tested = [_texts(test, name) for name in test.names]
        held = torch.cat([_windows("the test set", t, context) if whole else tokens.encode(t) for t in tested])
        stride = context + 1 if whole else context
        kind: Windows = "cut" if whole else self.windows

        def data(some: Sequence[Tensor]) -> TextData:
            return TextData(torch.cat(list(some)), torch.tensor([len(part) for part in some]), context, kind, stride)

        kept, validation = set_aside(data([held]).samples(0, self.test_windows or None), self.validation_share)
        return Problem.build(
            seeded_model({"name": "lstm", **model}, (context,), tokens.vocabulary, seed),
            next_token_loss,
            clients=data(parts),
            test=kept,
            validation=validation,
            buffers=buffers_of(model),
        )


def _texts(files: FederatedFiles, name: str) -> list[bytes]:
    texts = files.read(name)
    if not isinstance(texts, list):
        raise DataError("Some clients have text and others have classes; a data set must be of one kind.")
    return texts


def _windows(name: str, texts: Sequence[bytes], context: int) -> Tensor:
    """Windows as they come, one after the other."""
    if any(len(text) != context + 1 for text in texts):
        raise DataError(f"The texts of {name} are not all of {context} characters and one that follows.")
    return torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8)


def _too_many(wanted: int, there: int) -> ConfigError:
    return ConfigError(f"num_clients is {wanted}, but the files have {there} clients with enough samples.")
