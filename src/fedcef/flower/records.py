"""Bytes in Flower's records, as they are: one Array for orders and replies, one number for who a client is."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

STYPE = "fedcef.v1"
"""What Flower calls the kind of bytes in an Array."""
_KEY, _SECURE = "fedcef", "secure"


def with_bytes(data: bytes, secure: bytes = b"") -> RecordDict:
    """An order or a reply as a message's content; with an order, what its masks are made of."""
    parts = {_KEY: data, **({_SECURE: secure} if secure else {})}
    arrays = {name: Array(dtype="uint8", shape=(len(part),), stype=STYPE, data=part) for name, part in parts.items()}
    return RecordDict({_KEY: ArrayRecord(arrays)})


def masks_of(message: Message) -> bytes:
    """What came with an order to make masks of; empty if nothing did."""
    return bytes_of(message, _SECURE)


def bytes_of(message: Message, name: str = _KEY) -> bytes:
    """An order or a reply; empty if the message holds none."""
    record = message.content.array_records.get(_KEY)
    array = None if record is None else record.get(name)
    return array.data if array is not None and array.stype == STYPE else b""


def with_number(client: int, code: str = "") -> RecordDict:
    """A client's number as a message's content, and the fingerprint of its code."""
    return RecordDict({_KEY: ConfigRecord({"client": client, "code": code})})


def number_of(message: Message) -> int | None:
    """The client's number that a node gave; None if it gave none."""
    record = message.content.config_records.get(_KEY)
    number = None if record is None else record.get("client")
    return number if isinstance(number, int) else None


def code_of(message: Message) -> str:
    """The fingerprint of a client's code; empty if it gave none."""
    record = message.content.config_records.get(_KEY)
    code = "" if record is None else record.get("code", "")
    return code[:80] if isinstance(code, str) and code.isalnum() else ""
