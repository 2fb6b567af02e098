"""From text to tokens: bytes, or a Hugging Face tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import DataError
from fedcef.core.extras import install

ENDS = ("<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "[SEP]")
"""What tokenizers call the end of a document; the first that one knows is put there."""


class Tokens(Protocol):
    """A way to make tokens of documents."""

    vocabulary: int
    """How many tokens there are."""

    def encode(self, documents: Sequence[bytes]) -> Tensor:
        """The documents one after the other, each with a mark of its end: (n,) uint8 or int32."""


class ByteTokens:
    """Every byte is a token; a document ends with the byte 0."""

    vocabulary = 256

    def encode(self, documents: Sequence[bytes]) -> Tensor:
        """The bytes of the documents, each followed by a 0: (n,) uint8."""
        joined = b"".join(document + b"\0" for document in documents)
        return torch.frombuffer(bytearray(joined), dtype=torch.uint8) if joined else torch.empty(0, dtype=torch.uint8)


class HuggingFaceTokens:
    """The tokens of a `tokenizers.Tokenizer`; a document ends with its mark of an end, where it has one."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.vocabulary = int(tokenizer.get_vocab_size())
        self._end = next((end for mark in ENDS if (end := tokenizer.token_to_id(mark)) is not None), None)

    def encode(self, documents: Sequence[bytes]) -> Tensor:
        """The tokens of the documents, which must be UTF-8: (n,) int32."""
        try:
            texts = [document.decode("utf-8") for document in documents]
        except UnicodeDecodeError as error:
            raise DataError(f"A document is not UTF-8 ({error}); take tokenizer = 'bytes', or convert it.") from None
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        end = [] if self._end is None else [np.array([self._end], dtype=np.int32)]
        parts = [part for one in encoded for part in (np.array(one.ids, dtype=np.int32), *end)]
        return torch.from_numpy(np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32))


def find_tokens(name: str) -> Tokens:
    """Tokens by name: "bytes", the file of a tokenizer (tokenizer.json), or its name on the Hugging Face hub."""
    if name == "bytes":
        return ByteTokens()
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise DataError(
            f"the tokenizer {name} needs the package tokenizers, or take 'bytes'; run: {install('tokenizers')}"
        ) from None
    try:
        local = Path(name).is_file()
        return HuggingFaceTokens(Tokenizer.from_file(name) if local else Tokenizer.from_pretrained(name))
    except Exception as error:  # of the library, which has no kind of its own
        raise DataError(
            f"There is no tokenizer {name!r}: it must be 'bytes', a file tokenizer.json, or a name on the Hugging Face "
            f"hub ({str(error).strip().splitlines()[0]})."
        ) from error
