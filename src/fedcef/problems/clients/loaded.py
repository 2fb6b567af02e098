"""Clients that are read one by one, each when it is asked for: a function, files, or rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedcef.core.amounts import as_bytes
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.parts import check
from fedcef.core.ranges import Count
from fedcef.problems.client_data import ClientData, Convert, Look, PooledData, Samples
from fedcef.problems.clients.cache import Cache
from fedcef.problems.reading import Form, Reading

CACHE = "1GB"
"""How much of what was read is kept in memory, where nothing else is said."""


class LoadedData(ClientData):
    """Clients that a function reads; those used last are kept.

    What a client holds is checked when it is read, as `Problem.build` checks clients that lie in memory.
    """

    def __init__(
        self,
        read: Callable[[int], Any],
        num_clients: int,
        sizes: Tensor | None = None,
        cache: int | str = CACHE,
        look: Look | None = None,
        form: Form | None = None,
        convert: Convert | None = None,
        reading: Reading = Reading(),
        place: Callable[[int], object] | None = None,
    ) -> None:
        """A source of `num_clients` clients.

        Args:
            read: read(client) returns a client's samples in any form that `Problem.build` takes.
            num_clients: N.
            sizes: How many samples each client has, (N,), where that is known; held against what is read.
            cache: How many bytes are kept of what was read, such as "1GB"; a cohort should fit into half of it.
            look: What else to check.
            form: What samples look like; by default the first client that is read says so.
            convert: What makes them what they look like.
            reading: How what `read` returns is read.
            place: place(client) says where that lies, for sentences on what is wrong with it.
        """
        try:
            limit = as_bytes(cache)
        except ValueError as error:
            raise ConfigError(f"cache is {cache!r}; it must be {error}.") from None
        self._read, self._known, self._limit = read, sizes, limit
        self._num_clients: int = check("num_clients", Count, num_clients)
        self._look, self._form, self._convert, self._reading = look, form, convert, reading
        self._place = place
        self.classes = reading.labels.classes if reading.labels else ()
        self._cache = Cache(self._checked_client, limit)
        self._tables: tuple[list[int], Samples] | None = None

    @property
    def num_clients(self) -> int:
        """N, how many clients there are."""
        return self._num_clients

    @cached_property
    def equal_sizes(self) -> bool:  # type: ignore[override]
        """Whether all clients are known to have equally many samples."""
        return self._known is not None and bool((self._known == self._known[:1]).all())

    @cached_property
    def sizes(self) -> Tensor:  # type: ignore[override]
        """Everyone's; where they are not known, all clients are read for it."""
        return self.sizes_of(torch.arange(self.num_clients))

    def sizes_of(self, clients: Tensor) -> Tensor:
        """As known, or as read."""
        if self._known is not None:
            return self._known[clients]
        sizes = [len(self._cache.get(client)) for client in clients.tolist()]
        return torch.tensor(sizes, dtype=torch.int64, device=clients.device)

    def samples(self, client: int, count: int | None = None) -> Samples:
        """A client's samples, read if they are not at hand."""
        samples = self._cache.get(client)
        return samples if count is None else samples[:count]

    def tables(self, clients: Tensor) -> Samples:
        """All samples of clients of equal size; the last ones are kept, since every local step asks for the same."""
        wanted = clients.tolist()
        if self._tables is None or self._tables[0] != wanted:
            mine = [self.samples(client) for client in wanted]
            inputs, targets = torch.stack([s.inputs for s in mine]), torch.stack([s.targets for s in mine])
            self._tables = (wanted, Samples(inputs, targets, mine[0].packing))
        return self._tables[1]

    def batches(self, clients: Tensor, rows: Tensor) -> Callable[[int], Samples]:
        """take(k): gathered from a table of the cohort, with all samples of its clients or those drawn if fewer."""
        mine = [self.samples(client) for client in clients.tolist()]
        drawn = rows[0].numel()
        if drawn < min(map(len, mine)):
            mine = [samples[chosen] for samples, chosen in zip(mine, rows.flatten(1), strict=True)]
            rows = torch.arange(drawn, device=rows.device).view(1, *rows.shape[1:]).expand_as(rows)
        return PooledData.of(mine).batches(torch.arange(len(mine), device=rows.device), rows)

    def prefetch(self, clients: Tensor) -> None:
        """Read these in a thread while others are computed with."""
        self._cache.read_ahead(clients.tolist())

    def converted(self, convert: Convert) -> ClientData:
        """The same source, whose clients are changed when they are read."""
        return self._with(convert=convert)

    def read_by(self, reading: Reading) -> ClientData:
        """The same source, read otherwise."""
        return self._with(reading=reading)

    def _with(self, **changes: Any) -> LoadedData:
        options = {"look": self._look, "convert": self._convert, "reading": self._reading, **changes}
        return LoadedData(self._read, self._num_clients, self._known, self._limit, place=self._place, **options)

    def checked(self, look: Look) -> ClientData:
        """The same source, with another look at every client that is read; the first one is looked at now."""
        data = self._with(look=look, form=self._form)
        if self._form is not None:
            data.samples(self._form.client)
        return data

    def _checked_client(self, client: int) -> Samples:
        """A client read and looked at: what does not fit is told in a sentence, with the client's number."""
        try:
            data = self._read(client)
        except ProblemError:
            raise
        except Exception as error:
            said = str(error) or type(error).__name__
            raise ProblemError(f"The data of client {client} cannot be read: {said}") from error
        try:
            return self._fitting(client, data)
        except ProblemError as error:
            if self._place is None:
                raise
            said = str(error)
            raise ProblemError(f"In {self._place(client)}, {said[:1].lower()}{said[1:]}") from None

    def _fitting(self, client: int, data: Any) -> Samples:
        """What was read as samples, if they are what is said of them."""
        samples = self._reading.samples(data, f"client {client}")
        if self._convert is not None:
            samples = self._convert(samples, f"client {client}")
        if self._form is None:
            self._form = Form.of(client, samples)
        self._form.check(client, samples)
        if self._known is not None and len(samples) != int(self._known[client]):
            raise ProblemError(
                f"Client {client} has {len(samples)} samples, but was said to have {int(self._known[client])}."
            )
        if self._look is not None:
            self._look(samples, lambda row: f"Client {client}")
        return samples


def from_function(
    load: Callable[[int], Any],
    num_clients: int,
    sizes: int | Sequence[int] | Tensor | None = None,
    cache: int | str = CACHE,
) -> ClientData:
    """Clients that a function reads, each when a round needs it.

    Args:
        load: load(client) returns the inputs and targets of a client, or a map-style data set.  It is also called from
            a second thread, which reads the next cohort, and must return the same every time.
        num_clients: N.
        sizes: How many samples each client has, or one number for all, if that is known before reading.  With full
            batches (batch_size = 0) clients that are known to be equally large are computed together.
        cache: How many bytes are kept of what was read; a cohort should fit into half of it.

    >>> data = from_function(lambda client: (torch.full((3, 1), float(client)), torch.arange(3)), num_clients=1_000_000)
    >>> data.samples(123_456).inputs.flatten().tolist()
    [123456.0, 123456.0, 123456.0]
    """
    known, num_clients = None, check("num_clients", Count, num_clients)
    if sizes is not None:
        known = torch.tensor(sizes).expand(num_clients) if isinstance(sizes, int) else torch.as_tensor(sizes)
        if known.shape != (num_clients,) or known.is_floating_point() or int(known.min()) < 1:
            raise ProblemError(f"The sizes must be one whole number of at least 1 for each of {num_clients} clients.")
    return LoadedData(load, num_clients, known, cache)
