"""Some of a source's clients, or all of them on another device."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from fedcef.problems.client_data import ClientData, Convert, Look, Samples


class Selected(ClientData):
    """Some of another source's clients, or all of them, handed out on a device."""

    def __init__(
        self,
        source: ClientData,
        clients: Tensor | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.source, self.clients, self.device, self.dtype = source, clients, device, dtype
        self.equal_sizes = source.equal_sizes
        self.captures = source.captures and device is None
        self.classes = source.classes

    @property
    def num_clients(self) -> int:
        """As many as were selected."""
        return self.source.num_clients if self.clients is None else len(self.clients)

    @cached_property
    def sizes(self) -> Tensor:  # type: ignore[override]
        """Everyone's; a source that does not know them is read through."""
        return self.sizes_of(torch.arange(self.num_clients))

    @property
    def example(self) -> Samples:
        """The first one's samples, or anyone's."""
        return self._moved(self.source.example if self.clients is None else self.source.samples(self._number(0), 2))

    def sizes_of(self, clients: Tensor) -> Tensor:
        """As the source says."""
        sizes = self.source.sizes_of(self._numbers(clients))
        return sizes if self.device is None else sizes.to(self.device)

    def samples(self, client: int, count: int | None = None) -> Samples:
        """As the source has them."""
        return self._moved(self.source.samples(self._number(client), count))

    def tables(self, clients: Tensor) -> Samples:
        """As the source has them."""
        return self._moved(self.source.tables(self._numbers(clients)))

    def batches(self, clients: Tensor, rows: Tensor) -> Callable[[int], Samples]:
        """As the source has them; each batch goes to the device by itself."""
        take = self.source.batches(self._numbers(clients), rows if self.device is None else rows.cpu())
        return lambda k: self._moved(take(k))

    def prefetch(self, clients: Tensor) -> None:
        """Passed on to the source."""
        self.source.prefetch(self._numbers(clients))

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> ClientData:
        """The same clients elsewhere."""
        return Selected(self.source, self.clients, torch.device(device), dtype or self.dtype)

    def checked(self, look: Look) -> ClientData:
        """The same clients of the source that is looked at."""
        return Selected(self.source.checked(look), self.clients, self.device, self.dtype)

    def converted(self, convert: Convert) -> ClientData:
        """The same clients of the source in its other form."""
        return Selected(self.source.converted(convert), self.clients, self.device, self.dtype)

    def distinct_targets(self) -> Tensor | None:
        """Of all the source's clients."""
        return self.source.distinct_targets()

    def identity(self) -> list[Tensor]:
        """A few samples, and who was selected."""
        return [*super().identity(), *([] if self.clients is None else [self.clients])]

    def _numbers(self, clients: Tensor) -> Tensor:
        numbers = clients if self.device is None else clients.cpu()
        return numbers if self.clients is None else self.clients[numbers]

    def _number(self, client: int) -> int:
        return client if self.clients is None else int(self.clients[client])

    def _moved(self, samples: Samples) -> Samples:
        return samples if self.device is None else samples.to(self.device, self.dtype)
