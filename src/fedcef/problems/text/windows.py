"""Clients whose samples are windows of text: `context` tokens, and the token that follows each of them.

All that is kept are the tokens, client after client.  A client with n tokens has ⌊(n - 1)/context⌋ samples, the windows
into which its text is cut: evaluation, epochs and full batches go through these, and so predict each token once.
Minibatches are drawn from all n - context windows, those that begin at any token.

Samples are not numbered in the order of the text: the r-th is window r·s mod (their number), with s near the golden
section of that number and without a common divisor, so that the first ones of a client are spread over its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd, sqrt
from typing import Literal

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ProblemError
from fedcef.core.parts import check
from fedcef.core.ranges import Count
from fedcef.problems.client_data import Look, Samples
from fedcef.problems.clients.pool import PoolData
from fedcef.problems.text.tokens import find_tokens

Windows = Literal["drawn", "cut"]
"""What minibatches are drawn from: windows that begin anywhere, or those into which a text is cut."""


class TextData(PoolData):
    """Windows of the clients' texts; the pool is every token with the next one, of which windows are stretches."""

    def __init__(
        self, tokens: Tensor, lengths: Tensor, context: int, windows: Windows = "drawn", stride: int | None = None
    ) -> None:
        """`tokens` (n,) holds the lengths[0] tokens of client 0 first, then client 1's, and so on.

        `stride` is the distance of cut windows, by default `context`; other ones are for text that comes in windows.
        """
        super().__init__(Samples(tokens[:-1], tokens[1:]))
        self.tokens, self.lengths, self.context, self.windows = tokens, lengths, context, windows
        self.stride = stride or context
        self.bytes_per_token: float | None = 1.0 if tokens.dtype == torch.uint8 else None
        """How many bytes of text a token stands for on average, where it is known: for measures in bits per byte."""
        short = (lengths <= context).nonzero().flatten().tolist()
        if short:
            raise ProblemError(
                f"The text of client {short[0]} has {int(lengths[short[0]])} tokens; a window takes context + 1 = "
                f"{context + 1}.  Shorten the context, or leave the client out."
            )
        self.starts = lengths.cumsum(0) - lengths
        self.sizes = (lengths - context - 1) // self.stride + 1
        self._leaps = torch.tensor([_leap(size) for size in self.sizes.tolist()], device=tokens.device)
        self._offsets = torch.arange(context, device=tokens.device)

    @cached_property
    def equal_sizes(self) -> bool:  # type: ignore[override]
        """Whether all clients have equally many cut windows."""
        return bool((self.sizes == self.sizes[:1]).all())

    @cached_property
    def largest(self) -> int:
        """The most cut windows that a client has."""
        return int(self.sizes.max())

    @property
    def example(self) -> Samples:
        """The first client's first samples."""
        return self.samples(0, 2)

    def draw(self, clients: Tensor, keys: Tensor, steps: int, size: int) -> Tensor:
        """Windows of K minibatches for every client: numbers from its size on are the windows that begin anywhere."""
        if self.windows == "cut":
            return super().draw(clients, keys, steps, size)
        anywhere = rng.integers(keys, steps * size, self.lengths[clients] - self.context)
        return (self.sizes[clients].unsqueeze(-1) + anywhere).view(len(clients), steps, size)

    def numbers(self, clients: Tensor, rows: Tensor) -> Tensor:
        """Where among the tokens the clients' own windows begin: (S,) and (S, m) -> (S, m)."""
        sizes, leaps = self.sizes[clients].unsqueeze(-1), self._leaps[clients].unsqueeze(-1)
        begins = torch.where(rows < sizes, rows * leaps % sizes * self.stride, rows - sizes)
        return self.starts[clients].unsqueeze(-1) + begins

    def gather(self, numbers: Tensor) -> Samples:
        """The windows that begin at these tokens, as int64: inputs and targets (…, context)."""
        found = self.pool[numbers.unsqueeze(-1) + self._offsets]
        return Samples(found.inputs.long(), found.targets.long())

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> TextData:
        """The tokens on a device; there is nothing to compute in a floating type."""
        return self._with(self.tokens.to(device), self.lengths.to(device))

    def only(self, clients: Sequence[int] | None) -> TextData:
        """The text of these clients alone."""
        if clients is None:
            return self
        parts = torch.split(self.tokens, self.lengths.tolist())
        chosen = torch.tensor(list(clients), dtype=torch.int64, device=self.tokens.device)
        tokens = torch.cat([self.tokens[:0], *(parts[client] for client in clients)])
        return self._with(tokens, self.lengths[chosen])

    def _with(self, tokens: Tensor, lengths: Tensor) -> TextData:
        data = TextData(tokens, lengths, self.context, self.windows, self.stride)
        data.bytes_per_token = self.bytes_per_token
        return data

    def checked(self, look: Look) -> TextData:
        """The same, after a look at the largest token, with others around it: a model that knows it knows all."""
        place = int(self.tokens.argmax())
        client = int(torch.searchsorted(self.starts, place, right=True)) - 1
        begin = min(place, int(self.starts[client] + self.lengths[client]) - self.context)
        around = self.tokens[begin : begin + self.context].long().unsqueeze(0)
        look(Samples(around, around), lambda row: f"Client {client}")
        return self

    def identity(self) -> list[Tensor]:
        """All there is."""
        return [self.tokens, self.lengths, torch.tensor([self.context, self.stride, self.windows == "drawn"])]


def from_texts(
    texts: Sequence[str | bytes | Sequence[str | bytes]],
    context: int = 128,
    tokenizer: str = "bytes",
    windows: Windows = "drawn",
) -> TextData:
    """Clients whose samples are windows of their texts.

    Args:
        texts: For each client a text, or a list of documents.
        context: How many tokens a window has.
        tokenizer: "bytes", the file of a Hugging Face tokenizer, or its name on the hub.
        windows: Minibatches are windows that begin anywhere ("drawn"), or those into which a text is "cut".

    >>> data = from_texts(["to be or not to be", b"that is the question"], context=4)
    >>> bytes(data.samples(0, 1).inputs[0].tolist())
    b'to b'
    """
    context = check("context", Count, context)
    check("windows", Windows, windows)
    tokens = find_tokens(tokenizer)
    clients = [[_bytes(d) for d in ([t] if isinstance(t, str | bytes) else t)] for t in texts]
    if not clients:
        raise ProblemError("The problem has no clients; give a text for each.")
    parts = [tokens.encode(documents) for documents in clients]
    data = join_clients(parts, context, windows)
    data.bytes_per_token = bytes_per_token([d for documents in clients for d in documents], sum(map(len, parts)))
    return data


def bytes_per_token(documents: Sequence[bytes], tokens: int) -> float:
    """How many bytes a token of these documents stands for, the mark of a document's end being one of them."""
    return sum(len(document) + 1 for document in documents) / max(1, tokens)


def join_clients(parts: Sequence[Tensor], context: int, windows: Windows = "drawn") -> TextData:
    """The clients whose tokens these are."""
    lengths = torch.tensor([len(part) for part in parts], dtype=torch.int64)
    return TextData(torch.cat(list(parts)), lengths, context, windows)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _leap(size: int) -> int:
    """The number nearest to size/φ that has no divisor in common with it: its multiples are spread evenly."""
    golden = round(size * (sqrt(5) - 1) / 2)
    near = (golden + sign * far for far in range(size) for sign in (1, -1))
    return next(leap for leap in near if gcd(leap, size) == 1)
