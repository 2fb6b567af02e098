"""All that each client has sent of the parts that add up: what its state, if it is lost, has left in everyone's sums.

FedCEF's c is the mean of the c_i, and c_i is the sum of the client's accepted messages.  A client that comes back
without c_i starts from zero, so the server must take that sum out of c; only the messages tell it.  It keeps them added
up, one file per client, N·p numbers on the disk and none in memory.  The files are brought up to date with every
snapshot; what came since is in the file of accepted replies.

The sum is taken in the same order and precision as the client takes it: for FedCEF it *is* c_i, bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.deployment.accepted_replies import AcceptedReplies
from fedcef.deployment.messages import Result
from fedcef.wire import decode
from fedcef.wire.checkpoint import read_checkpoint, write_checkpoint

Sum = dict[str, Tensor]
"""By part: what was sent of it, added up."""


class ClientSums:
    """The folder of sums."""

    def __init__(self, folder: Path, disk: Disk, parts: tuple[str, ...], dim: int) -> None:
        """`parts` are those that add up, of at most `dim` numbers; without any, nothing is kept."""
        self._folder, self._disk, self._parts, self._dim = folder, disk, parts, dim

    def of(self, client: int, replies: AcceptedReplies, before: int) -> Sum:
        """What a client that has sent something has sent before a round, since it last began afresh."""
        if not self._parts:
            return {}
        through, total = self._read(client)
        since = [result for round_, result in replies.of_client(client) if through <= round_ < before]
        if not total and not (since and since[0].base is None):  # its first message is missing
            raise self._unknown(client, f"{self._file(client)} is missing.")
        return added_up(total, since, self._parts, self._dim)

    def require(self, clients: Iterable[int], replies: AcceptedReplies) -> None:
        """Make sure that what these have sent is known, as far as can be told without reading it."""
        for client in clients if self._parts else ():
            if not self._file(client).exists():
                self.of(client, replies, sys.maxsize)

    def fold(self, replies: AcceptedReplies, through: int) -> None:
        """Bring the files up to a round; a file that is there already is left alone."""
        for client in sorted(replies.clients()) if self._parts else ():
            if self._read(client)[0] < through:
                total = self.of(client, replies, through)
                write_checkpoint(self._file(client), {"through": through, "client": client}, total, self._disk)

    def _file(self, client: int) -> Path:
        return self._folder / f"{client:06d}.sum"

    def _read(self, client: int) -> tuple[int, Sum]:
        if not self._file(client).exists():
            return 0, {}
        try:
            header, total = read_checkpoint(self._file(client))
        except RunError as error:
            raise self._unknown(client, str(error)) from None
        return header["through"], total

    def _unknown(self, client: int, why: str) -> RunError:
        return RunError(
            f"The run cannot go on without the sum of what client {client} sent: {why}  Put the file back from a copy, "
            "or begin a new run."
        )


def added_up(total: Sum, results: Iterable[Result], parts: tuple[str, ...], dim: int) -> Sum:
    """The sum with further messages; one that began afresh starts it anew."""
    for result in results:
        message = decode(result.frame, max_dim=dim).message
        new = {name: message[name].dense() for name in parts}
        total = new if result.base is None or not total else {name: total[name] + new[name] for name in parts}
    return total
