"""A corpus: documents read from files, its checksum, and how documents are dealt to clients."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from fedcef.core.errors import ConfigError, DataError


@dataclass(frozen=True)
class Document:
    """A document, its name in the corpus, and the part of the corpus that goes to one client as a whole."""

    name: str
    part: str
    content: bytes


def read_files(path: Path, pattern: str, separator: bytes, by_folder: bool) -> list[Document]:
    """The documents of a file, or of the files of a folder that match a pattern, in the order of their names.

    A file is one document, or several between separators.  It is also a part of the corpus, or with `by_folder` the
    folder directly below `path` in which it lies is.
    """
    files = [path] if path.is_file() else sorted(file for file in path.glob(pattern) if file.is_file())
    if not files:
        raise DataError(
            f"{path} is no file and has no files {pattern}; data.path must be a file of text or a folder of them."
        )
    documents = []
    for file in files:
        name = file.name if file == path else file.relative_to(path).as_posix()
        part = name.partition("/")[0] if by_folder else name
        try:
            content = plain(file.read_bytes())
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}.") from error
        pieces = [piece for piece in content.split(separator) if piece.strip()] if separator else [content]
        documents += [Document(f"{name}#{i}" if separator else name, part, piece) for i, piece in enumerate(pieces)]
    return documents


def plain(content: bytes) -> bytes:
    """Lines that end as on Linux, wherever the file comes from."""
    return content.replace(b"\r\n", b"\n")


def checksum(documents: Iterable[Document]) -> str:
    """SHA-256 of the names, lengths and contents of all documents, in their order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.name}\0{len(document.content)}\0".encode())
        digest.update(document.content)
    return digest.hexdigest()


def hold_out(documents: Sequence[Document], share: float) -> tuple[list[Document], list[Document]]:
    """Documents for training and for the test, by the hash of their content alone.

    So a document is on the same side in every corpus, and equal ones are on the same side.
    """
    below = int(share * 2**64)

    def tested(document: Document) -> bool:
        return int.from_bytes(hashlib.sha256(document.content).digest()[:8], "big") < below

    return [d for d in documents if not tested(d)], [d for d in documents if tested(d)]


def deal_parts(documents: Sequence[Document], num_clients: int) -> list[list[Document]]:
    """Whole parts to clients: the largest first, each to the client that has the least so far.

    With as many clients as parts each client is one.
    """
    parts: dict[str, list[Document]] = {}
    for document in documents:
        parts.setdefault(document.part, []).append(document)
    if len(parts) < num_clients:
        raise ConfigError(f"num_clients is {num_clients}, but the corpus has {len(parts)} parts; take at most as many.")
    clients: list[list[Document]] = [[] for _ in range(num_clients)]
    held = [0] * num_clients
    for mine in sorted(parts.values(), key=_size, reverse=True):  # a stable order: equal ones stay in that of names
        poorest = held.index(min(held))
        clients[poorest] += mine
        held[poorest] += _size(mine)
    return clients


def deal_in_turn(documents: Sequence[Document], num_clients: int) -> list[list[Document]]:
    """Document i to client i mod N."""
    if len(documents) < num_clients:
        raise ConfigError(
            f"num_clients is {num_clients}, but the corpus has {len(documents)} documents; take at most as many, or "
            "data.split = 'contiguous'."
        )
    return [list(documents[client::num_clients]) for client in range(num_clients)]


def cut_evenly(content: bytes, shares: Sequence[float]) -> list[bytes]:
    """Stretches of a text whose lengths have these shares of it; a character of UTF-8 is not cut in two."""
    ends = [0, *(_whole(content, round(place * len(content))) for place in accumulate(shares))]
    return [content[begin:end] for begin, end in pairwise(ends)]


def _whole(content: bytes, place: int) -> int:
    while 0 < place < len(content) and content[place] & 0xC0 == 0x80:
        place -= 1
    return min(place, len(content))


def _size(documents: Iterable[Document]) -> int:
    return sum(len(document.content) for document in documents)
