"""The client's line: `app = ClientApp(mods=[fedcef.flower.compressed()])`.

The mod stands between Flower and the app.  The app sees the arrays that its server sent, and returns arrays, as
without it; metrics, configs and everything else pass by.  A message of a server that does not compress passes whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict

from fedcef.core.disk import PrivateDisk
from fedcef.flower.settings import state_folder
from fedcef.flower.two_lines.messages import APART, BLOB, DONE, NEED, Answer, Order, as_record, order_in
from fedcef.flower.two_lines.node import NeedsMore, Node
from fedcef.flower.two_lines.store import NodeStore, forget_nodes, lock_of
from fedcef.runs.lock import locked

Handler = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Handler], Message]


def compressed(state_dir: str | Path | None = None) -> Mod:
    """A mod that rebuilds the model which the server sends in few bytes, and sends what the app has changed in few.

    Put it first among the mods, so that what others add to a model (clipping, noise) is compressed with it.

    Args:
        state_dir: where this node keeps what it must remember; by default the node config's or run config's
            `state-dir`, the variable FEDCEF_STATE, or ~/.local/state/fedcef.
    """

    def mod(message: Message, context: Context, call_next: Handler) -> Message:
        orders = orders_in(message)
        if not orders:
            return call_next(message, context)
        folder = _folder(context, state_dir)
        places = {name: folder / _place(order, name) for name, order in orders.items()}
        with ExitStack() as held:
            for place in sorted(places.values()):  # another run's message, or another model's, need not wait for this
                held.enter_context(locked(lock_of(place), wait=True, mode=PrivateDisk.dir_mode))
            nodes = {name: Node(NodeStore(places[name]), order) for name, order in orders.items()}
            return _handled(message, context, call_next, nodes)

    return mod


def orders_in(message: Message) -> dict[str, Order]:
    """The orders in a message, by the name of the record in whose place they stand."""
    records = message.content.array_records if message.has_content() else {}
    return {name: order for name, record in records.items() if (order := order_in(record)) is not None}


def _handled(message: Message, context: Context, call_next: Handler, nodes: dict[str, Node]) -> Message:
    again = next((node.state.answer for node in nodes.values() if node.done_before), b"")
    if again:  # the same order came twice: the same answer
        return Message(recorddict_from_proto(ProtoRecordDict.FromString(again)), reply_to=message)
    content = RecordDict(dict(message.content.items()))
    lacking = False
    for name, node in nodes.items():
        try:
            as_they_are = {k: a for k, a in message.content.array_records[name].items() if k not in (BLOB, APART)}
            model = node.receive(_arrays(ArrayRecord(as_they_are)))
            content[name] = ArrayRecord(as_they_are or {key: Array(value) for key, value in model.items()})
        except NeedsMore:
            lacking = True
    if lacking:  # all of them come again: the message is answered as a whole
        needs = RecordDict({name: _blob(node, NEED, {"version": node.version}) for name, node in nodes.items()})
        return Message(needs, reply_to=message)
    message.content = content
    reply = call_next(message, context)
    if reply.has_content():
        _pack(reply, nodes)
    return reply


def _pack(reply: Message, nodes: dict[str, Node]) -> None:
    """Put answers in the place of models."""
    records = reply.content.array_records
    answered = []
    for name, node in nodes.items():
        place = name if name in records or len(records) != 1 or len(nodes) != 1 else next(iter(records))
        record = records.get(place)
        answer = node.answer(_arrays(record)) if record is not None else None
        if answer is not None:
            reply.content[place] = as_record(answer.encode())
            answered.append(node)
        elif record is not None:
            record[BLOB] = _blob(node, DONE)[BLOB]
        else:
            reply.content[name] = _blob(node, DONE)
    kept = recorddict_to_proto(reply.content).SerializeToString() if answered else b""
    for node in nodes.values():
        node.keep(kept if node in answered else b"")
    next(iter(nodes.values())).store.forget_others({node.store.folder for node in nodes.values()})
    forget_nodes(next(iter(nodes.values())).store.folder.parents[1])


def _arrays(record: ArrayRecord) -> dict[str, Any]:
    """The arrays of a record; empty if some are no arrays that NumPy can read."""
    try:
        return {name: array.numpy() for name, array in record.items()}
    except (TypeError, ValueError):
        return {}


def _blob(node: Node, kind: int, text: dict[str, Any] | None = None) -> ArrayRecord:
    order = node.order
    return as_record(Answer(order.run, order.order, node.state.client, kind, node.state.committed, text).encode())


def _folder(context: Context, state_dir: str | Path | None) -> Path:
    """This node's folder: by its number where its config gives one, so that a restart finds it again."""
    config = context.node_config
    number = config.get("client", config.get("partition-id"))
    own = "node" if config.get("state-dir") else f"node-{context.node_id}"
    root = Path(state_dir).expanduser() if state_dir else state_folder(context.run_config, config, 0).parent
    return root / (f"client-{number}" if number is not None else own) / "two-lines"


def _place(order: Order, name: str) -> str:
    return f"{order.run.hex()}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
