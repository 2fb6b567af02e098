"""Forms and value types of other packages: numbers 192 to 255, which this format never gives out itself.

Bytes with such a number name the package that they belong to.  So two packages may choose the same number, and a reader
that lacks one can say which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from fedcef.wire.names import encode_name, read_name
from fedcef.wire.reader import Reader, WireError

FIRST, LAST = 192, 255

T = TypeVar("T")


class Extensions(Generic[T]):
    """The readers that other packages registered for one kind of number."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._readers: dict[tuple[int, str], Callable[..., T]] = {}

    def register(self, number: int, read: Callable[..., T], package: str) -> bytes:
        """Let `read` read what has this number and names this package; returns the bytes that name it.

        The same function may be registered again, as it is when a module is reloaded.
        """
        if not FIRST <= number <= LAST:
            raise WireError(
                f"{self._kind} {number} cannot be registered by {package}; other packages take {FIRST} to {LAST}."
            )
        if not all(part.isidentifier() for part in package.split(".")):
            raise WireError(f"{package!r} is no name that could be imported; give that of the package or module.")
        known = self._readers.get((number, package))
        if known is not None and _origin(known) != _origin(read):
            raise WireError(f"{self._kind} {number} of {package} is taken by {_origin(known)}; take another number.")
        self._readers[number, package] = read
        return encode_name(package, "package")

    def read(self, reader: Reader, number: int, *known: object) -> T:
        """What the next bytes are, by the function that was registered for them: read(reader, *known).

        Whatever it raises becomes a `WireError`, for bytes from an enemy may be the cause.
        """
        package = read_name(reader, "package")
        read = self._readers.get((number, package))
        if read is None:
            raise WireError(
                f"{self._kind} {number} is not one of fedcef's but belongs to the package {package!r}, which is not "
                f"imported here; import it before reading."
            )
        try:
            return read(reader, *known)
        except WireError:
            raise
        except Exception as error:
            raise WireError(f"{self._kind} {number} of {package} could not be read: {error!r}.") from error


def _origin(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
