"""Reading a payload by its form: one of this package's, or one that another package registered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fedcef.wire.context import Context
from fedcef.wire.extensions import FIRST, Extensions
from fedcef.wire.forms.dense import Dense
from fedcef.wire.forms.low_rank import LowRank
from fedcef.wire.forms.relay import Relay
from fedcef.wire.forms.rotated import Rotated
from fedcef.wire.forms.seeded import Seeded
from fedcef.wire.forms.sparse import Sparse
from fedcef.wire.payload import (
    DENSE,
    LOW_RANK,
    RELAY,
    ROTATED,
    SEEDED,
    SPARSE,
    SPARSE_IN_CONTEXT,
    Head,
    Payload,
    read_head,
)
from fedcef.wire.reader import Reader, WireError

_FORMS: dict[int, tuple[str, Callable[[Reader, Head], Payload]]] = {
    DENSE: ("dense", Dense.read),
    SPARSE: ("sparse", Sparse.read),
    SEEDED: ("seeded", Seeded.read),
    ROTATED: ("rotated", Rotated.read),
    LOW_RANK: ("low rank", LowRank.read),
}
_NAMES = {form: name for form, (name, _) in _FORMS.items()} | {RELAY: "relay", SPARSE_IN_CONTEXT: "sparse in context"}
_OTHERS: Extensions[Payload] = Extensions("Form")


def register_form(number: int, read: Callable[[Reader, Head], Payload], *, package: str) -> bytes:
    """Teach the decoder a form of another package's (docs/wire.md has an example).

    Args:
        number: 192 to 255.
        read: makes a payload of what follows the package's name, taking from the reader what is its own.
        package: what must be imported to have the form registered.

    Returns:
        The package's name in bytes; a payload of this form is `encode_head(number, …)`, these bytes, and its own.
    """
    return _OTHERS.register(number, read, package)


def read_payload(reader: Reader, head: Head, max_relayed: int, context: Context | None = None) -> Payload:
    """The payload with this head, which may be coded with the context, or be a relay of at most so many others."""
    if head.form == RELAY:
        if not max_relayed:
            raise WireError("There can be no relay here; relays come down from the server, and hold none themselves.")
        return Relay.read(reader, head, max_relayed, partial(_read_relayed, context))
    return _read_simple(reader, head, context)


def _read_relayed(context: Context | None, reader: Reader, dim: int) -> Payload:
    """A payload inside a relay: of the relay's dimension, and no relay itself."""
    head = read_head(reader, dim)
    if head.dim != dim:
        raise WireError(f"A relay of dimension {dim} holds a vector of dimension {head.dim}.")
    return read_payload(reader, head, 0, context)


def _read_simple(reader: Reader, head: Head, context: Context | None) -> Payload:
    if head.form == SPARSE_IN_CONTEXT:
        return Sparse.read_given(reader, head, context)
    if head.form >= FIRST:
        payload = _OTHERS.read(reader, head.form, head)
        if payload.dim != head.dim:
            raise WireError(f"Form {head.form} gave a vector of dimension {payload.dim}; its head says {head.dim}.")
        return payload
    if head.form not in _FORMS:
        listed = ", ".join(f"{form} ({name})" for form, name in _NAMES.items())
        raise WireError(f"Unknown payload form {head.form}; allowed are {listed}.")
    return _FORMS[head.form][1](reader, head)
