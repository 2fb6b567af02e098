"""What Flower adds to a message: python benchmarks/flower_message.py

A message as fedcef sends it, taken apart as flwr 1.41 does before it goes out: objects of their own, the tree that
names them, and the message without its content.  What HTTP and TLS add is not in it.
"""

from __future__ import annotations

import os

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from fedcef.flower.records import with_bytes

SIZES = (200, 5_000, 50_000, 500_000, 5_000_000, 4 * 4_460_106)


def parts(size: int) -> dict[str, int]:
    """Bytes that come on top of so many."""
    message = Message(with_bytes(os.urandom(size)), dst_node_id=2**63, message_type="train")
    objects = sum(len(one.deflate()) for one in get_all_nested_objects(message).values())
    tree = get_object_tree(message).ByteSize()
    return {
        "objects": objects - size,
        "tree": tree,
        "metadata": message_to_proto(remove_content_from_message(message)).ByteSize(),
    }


def main() -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 2**63, 2**63, 1  # as large as Flower draws them
    print(f"{'bytes':>12}{'objects':>9}{'tree':>7}{'metadata':>10}{'together':>10}{'share':>8}")
    for size in SIZES:
        found = parts(size)
        together = sum(found.values())
        columns = f"{found['objects']:9}{found['tree']:7}{found['metadata']:10}{together:10}"
        print(f"{size:12,}{columns}{together / (size + together):8.2%}")


if __name__ == "__main__":
    main()
