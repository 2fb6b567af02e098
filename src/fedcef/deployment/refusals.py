"""Why clients refuse a round, where they all do: then it will not end by itself, and a person must hear of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

_AHEAD = re.compile(r"this client has seen (\d+) rounds")


def ahead(round_: int, seen: int) -> str:
    """What a client says to an order of a round that it has left behind."""
    return f"Round {round_} is over; this client has seen {seen} rounds."


def rounds_seen(sentence: str) -> int | None:
    """How many rounds a client has seen that says so; None for any other sentence."""
    found = _AHEAD.search(sentence)
    return int(found[1]) if found else None


def in_common(sentences: Mapping[int, str]) -> str:
    """What all clients say, in the words of the one who is furthest ahead or the first; "" if they differ.

    Numbers in it may differ: those of rounds, clients and bytes.
    """
    if len({re.sub(r"\d+", "0", sentence) for sentence in sentences.values()}) != 1:
        return ""
    return max(sentences.values(), key=lambda sentence: rounds_seen(sentence) or 0)
