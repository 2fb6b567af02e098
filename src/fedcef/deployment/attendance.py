"""Who has been missing, and how often they are still asked.

A client that is always late makes every round last until its deadline, and one that has lost its data is asked in vain.
So whoever misses several rounds in a row is asked in every second round, if it goes on in every fourth, and so on; once
it takes part it is asked as before.  This is the server's memory only: after a restart everyone is asked again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

LONGEST = 32
"""Rounds after which everyone is asked again at least once."""


@dataclass(frozen=True)
class Attendance:
    """What is known of clients that missed rounds."""

    misses: int
    """After so many in a row a client is asked less often; 0 = never."""
    _missed: Mapping[int, int] = field(default_factory=dict)  # rounds in a row, by client
    _asked_in: Mapping[int, int] = field(default_factory=dict)  # the next round in which it is asked

    def after(self, round_: int, cohort: Collection[int], accepted: Collection[int]) -> Attendance:
        """What is known after a round in which these were asked, and these took part."""
        missed = {client: count for client, count in self._missed.items() if client not in accepted}
        missed |= {client: missed.get(client, 0) + 1 for client in cohort if client not in accepted}
        again = {client: asked for client, asked in self._asked_in.items() if client in missed}
        again |= {client: round_ + self._interval(missed[client]) for client in cohort if client in missed}
        return Attendance(self.misses, missed, again)

    def missed(self, client: int) -> int:
        """How many rounds in a row a client has missed."""
        return self._missed.get(client, 0)

    def resting(self, round_: int) -> set[int]:
        """Who is not asked in a round."""
        return {client for client, again in self._asked_in.items() if again > round_}

    def _interval(self, missed: int) -> int:
        beyond = missed - self.misses
        return min(2 ** (beyond + 1), LONGEST) if self.misses and beyond >= 0 else 1
