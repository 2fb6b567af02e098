"""Reading a payload by its form."""

from __future__ import annotations

from collections.abc import Callable

from fedcef.wire.errors import WireError
from fedcef.wire.forms.dense import Dense
from fedcef.wire.forms.low_rank import LowRank
from fedcef.wire.forms.relay import Relay
from fedcef.wire.forms.rotated import Rotated
from fedcef.wire.forms.seeded import Seeded
from fedcef.wire.forms.sparse import Sparse
from fedcef.wire.payload import DENSE, LOW_RANK, RELAY, ROTATED, SEEDED, SPARSE, Head, Payload, read_head
from fedcef.wire.reader import Reader

_FORMS: dict[int, tuple[str, Callable[[Reader, Head], Payload]]] = {
    DENSE: ("dense", Dense.read),
    SPARSE: ("sparse", Sparse.read),
    SEEDED: ("seeded", Seeded.read),
    ROTATED: ("rotated", Rotated.read),
    LOW_RANK: ("low rank", LowRank.read),
}
_NAMES = {form: name for form, (name, _) in _FORMS.items()} | {RELAY: "relay"}


def read_payload(reader: Reader, max_dim: int) -> Payload:
    head = read_head(reader, max_dim)
    if head.form == RELAY:
        return Relay.read(reader, head, _read_relayed)
    return _read_simple(reader, head, _NAMES)


def _read_relayed(reader: Reader, dim: int) -> Payload:
    """A payload inside a relay: of the relay's dimension, and no relay itself."""
    head = read_head(reader, dim)
    if head.dim != dim:
        raise WireError(f"A relay of dimension {dim} holds a vector of dimension {head.dim}.")
    return _read_simple(reader, head, {form: _NAMES[form] for form in _FORMS})


def _read_simple(reader: Reader, head: Head, allowed: dict[int, str]) -> Payload:
    if head.form not in _FORMS:
        listed = ", ".join(f"{form} ({name})" for form, name in allowed.items())
        raise WireError(f"Unknown payload form {head.form}; allowed are {listed}.")
    return _FORMS[head.form][1](reader, head)
