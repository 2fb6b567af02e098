"""Who is whose neighbour in a round of secure aggregation: everyone everyone's, or so many on a ring."""

from __future__ import annotations

import math
import random
from collections.abc import Collection


def neighbourhoods(clients: Collection[int], neighbours: int) -> dict[int, tuple[int, ...]]:
    """Each client's neighbours and itself, ascending: all of them, or half of them on either side of a random ring.

    The ring is drawn anew each time from the operating system, so that nobody can have chosen its place.
    """
    if neighbours == 0 or neighbours >= len(clients) - 1:
        everyone = tuple(sorted(clients))
        return dict.fromkeys(everyone, everyone)
    ring = list(clients)
    random.SystemRandom().shuffle(ring)
    half, n = neighbours // 2, len(ring)
    return {
        client: tuple(sorted(ring[(place + offset) % n] for offset in range(-half, half + 1)))
        for place, client in enumerate(ring)
    }


def needed(threshold: float, members: int) -> int:
    """How many of a neighbourhood must stay to the end: this share of it, more than half, and at least two."""
    return max(2, math.ceil(threshold * members - 1e-9), members // 2 + 1)
