"""Problems of text by name: `text`, files of the user's; `stdlib`, the source of Python's standard library."""

from __future__ import annotations

import platform
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from fedcef.core.errors import ConfigError, DataError
from fedcef.core.ranges import Count, NotNegative
from fedcef.problems.client_data import Samples
from fedcef.problems.problem import Problem
from fedcef.problems.source import ProblemSource, ShareOfTest, buffers_of, seeded_model, set_aside
from fedcef.problems.text.corpus import (
    Document,
    checksum,
    cut_evenly,
    deal_in_turn,
    deal_parts,
    hold_out,
    read_files,
)
from fedcef.problems.text.loss import next_token_loss
from fedcef.problems.text.stdlib import read_stdlib
from fedcef.problems.text.tokens import find_tokens
from fedcef.problems.text.windows import Windows, bytes_per_token, join_clients

Dealt = tuple[list[list[bytes]], list[bytes]]
"""The documents of each client, and those of the test set."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelling(ProblemSource):
    """Windows of text with the next token as target; a model by name, by default a small GPT."""

    name: str
    context: Count = 128
    """How many tokens a window has."""
    tokenizer: str = "bytes"
    """"bytes", the file of a Hugging Face tokenizer, or its name on the hub."""
    windows: Windows = "drawn"
    """Whether minibatches are windows that begin anywhere, or those into which a text is cut."""
    tokens_per_client: NotNegative = 0
    """How many tokens of a client are kept, those at the beginning of its text; 0 = all."""
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """How much of the text is held out for the test set; 0 = there is none."""
    test_windows: NotNegative = 256
    """How many windows the test set has, spread over what was held out; 0 = all."""
    validation_share: ShareOfTest | None = None
    """How much of the test set is set aside as the validation set, by which a run may be steered; nothing = none."""
    sha256: str = ""
    """What the text must be, where that is known: the checksum that a run records."""

    @abstractmethod
    def documents(self) -> list[Document]:
        """The whole corpus."""

    @abstractmethod
    def deal(self, documents: Sequence[Document], num_clients: int) -> Dealt:
        """Who has which documents."""

    def build(self, num_clients: int, seed: int, model: dict[str, Any]) -> Problem:
        """The problem with these clients; the model's start depends on the seed, and nothing else does."""
        documents = self.documents()
        self._verify(documents)
        clients, tested = self.deal(documents, num_clients)
        tokens = find_tokens(self.tokenizer)
        parts = [tokens.encode(mine)[: self.tokens_per_client or None] for mine in clients]
        data, held_out = join_clients(parts, self.context, self.windows), tokens.encode(tested)
        if len(held_out):
            data.bytes_per_token = bytes_per_token(tested, len(held_out))
        test, validation = set_aside(self._test(held_out), self.validation_share)
        return Problem.build(
            seeded_model({"name": "gpt", **model}, (self.context,), tokens.vocabulary, seed),
            next_token_loss,
            clients=data,
            test=test,
            validation=validation,
            buffers=buffers_of(model),
        )

    def found(self) -> dict[str, Any]:
        """The checksum of the text."""
        return {"sha256": checksum(self.documents())}

    def _test(self, tokens: Tensor) -> Samples | None:
        if not self.test_share:
            return None
        if len(tokens) <= self.context:
            raise ConfigError(
                f"The test set has {len(tokens)} tokens, and a window takes context + 1 = {self.context + 1}; raise "
                "data.test_share, or set it to 0."
            )
        return join_clients([tokens], self.context).samples(0, self.test_windows or None)

    def _verify(self, documents: Sequence[Document]) -> None:
        if self.sha256 and self.sha256 != (found := checksum(documents)):
            raise DataError(f"The text is not the one that data.sha256 is of: {self.sha256}; this one's is {found}.")


@dataclass(frozen=True, kw_only=True)
class Text(LanguageModelling):
    """Text files, one per client or divided by a rule; a model predicts the next token."""

    path: str = ""
    """A file, or a folder of files."""
    pattern: str = "**/*.txt"
    """Which files of the folder."""
    split: Literal["file", "folder", "round_robin", "contiguous"] = "file"
    """Whether a file, or a folder directly below `path`, goes to a client as a whole; or documents go in turn; or all
    the text is cut into equally long pieces, one for each client."""
    separator: str = ""
    """What stands between the documents of a file; "" = each file is one document."""

    def documents(self) -> list[Document]:
        """As the files have them."""
        if not self.path:
            raise ConfigError("data.path is missing; it must be a file of text or a folder of them.")
        by_folder = self.split == "folder"
        return read_files(Path(self.path).expanduser(), self.pattern, self.separator.encode(), by_folder)

    def deal(self, documents: Sequence[Document], num_clients: int) -> Dealt:
        """By the rule; documents are held out by their hash, and of files and pieces the end is."""
        if self.split == "folder":
            return _by_document(documents, self.test_share, deal_parts, num_clients)
        if self.split == "round_robin":
            return _by_document(documents, self.test_share, deal_in_turn, num_clients)
        if self.split == "file":
            texts = [b"\0".join(contents) for contents in _contents(deal_parts(documents, num_clients))]
        else:
            texts = cut_evenly(b"\0".join(d.content for d in documents), [1 / num_clients] * num_clients)
        cut = [cut_evenly(text, [1 - self.test_share, self.test_share]) for text in texts]
        return [[train] for train, _ in cut], [test for _, test in cut]


@dataclass(frozen=True, kw_only=True)
class StandardLibrary(LanguageModelling):
    """The source of the standard library of the Python that runs: packages and modules go to clients as a whole."""

    tests: bool = False
    """Whether Python's own tests belong to it, where they are installed."""

    def documents(self) -> list[Document]:
        """Its files."""
        return read_stdlib(self.tests)

    def deal(self, documents: Sequence[Document], num_clients: int) -> Dealt:
        """Files are held out by their hash."""
        return _by_document(documents, self.test_share, deal_parts, num_clients)

    def _verify(self, documents: Sequence[Document]) -> None:
        try:
            super()._verify(documents)
        except DataError as error:
            version = platform.python_version()
            raise DataError(f"{error}  It depends on the version of Python, which is {version} here.") from None


def _by_document(documents: Sequence[Document], share: float, deal: Any, num_clients: int) -> Dealt:
    train, test = hold_out(documents, share)
    return _contents(deal(train, num_clients)), [document.content for document in test]


def _contents(clients: Sequence[Sequence[Document]]) -> list[list[bytes]]:
    return [[document.content for document in mine] for mine in clients]
