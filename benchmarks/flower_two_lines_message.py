"""What a message costs that two lines pack and unpack: CPU time, and memory, by the number of parameters.

    python benchmarks/flower_two_lines_message.py [--size 100000000] [--write]

One server and one node in this process, Top-1% of signs up, Top-2% down; four rounds, medians of all but the first.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from measure import machine, write

from fedcef.flower.two_lines.messages import order_in
from fedcef.flower.two_lines.node import Node
from fedcef.flower.two_lines.notation import compressor
from fedcef.flower.two_lines.server import Server
from fedcef.flower.two_lines.store import NodeStore

LAYERS, ROUNDS = 8, 4
STEPS = ("server packs", "node unpacks", "node packs", "server unpacks")


def overhead(size: int) -> dict[str, Any]:
    """CPU time of each step, which depends less on what else the machine does; time by the clock; and memory.

    The peak is that of the process, which holds what server, strategy, Flower and node hold of a model.
    """
    rng = np.random.default_rng(0)
    model = {f"layer{i}": rng.standard_normal(size // LAYERS, np.float32) for i in range(LAYERS)}
    change = {name: rng.standard_normal(size // LAYERS, np.float32) * np.float32(1e-2) for name in model}
    server = Server(compressor("topk(0.01, sign)"), compressor("topk(0.02, sign)"))
    cpu: dict[str, list[float]] = {step: [] for step in STEPS}
    wall: dict[str, list[float]] = {step: [] for step in STEPS}
    sent: dict[str, int] = {}
    node: Node | None = None

    def timed(step: str, call: Any, *arguments: Any) -> Any:
        began = time.perf_counter(), time.process_time()
        result = call(*arguments)
        wall[step].append(1e3 * (time.perf_counter() - began[0]))
        cpu[step].append(1e3 * (time.process_time() - began[1]))
        return result

    def pack() -> Any:
        server.advance([RecordDict({"arrays": record})])
        return server.order(server.channels["arrays"], 7)

    def unpack(packed: ArrayRecord) -> Any:
        nonlocal node
        order = order_in(packed)
        assert order is not None
        node = Node(store, order)
        return node.receive()

    def answer(after: Any) -> bytes:
        assert node is not None
        found = node.answer(after)
        assert found is not None
        blob = found.encode()
        node.keep(blob)
        return blob

    with tempfile.TemporaryDirectory() as place:
        store = NodeStore(Path(place) / "node" / "run")
        for _ in range(ROUNDS):
            for name, array in model.items():
                array += change[name]
            record = ArrayRecord({name: Array(array) for name, array in model.items()})
            packed, ordered = timed("server packs", pack)
            given = timed("node unpacks", unpack, packed)
            reply = timed("node packs", answer, {name: array + change[name] for name, array in given.items()})
            timed("server unpacks", server.take, RecordDict({}), "arrays", reply, ordered, 7)
            sent = {"down": sum(len(array.data) for array in packed.values()), "up": len(reply)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row = {
        "parameters": size,
        "bytes": sent,
        "cpu_milliseconds": {step: statistics.median(found[1:]) for step, found in cpu.items()},
        "wall_milliseconds": {step: statistics.median(found[1:]) for step, found in wall.items()},
        "peak_bytes": peak,
        "peak_in_models": peak / (4 * size),
    }
    steps = "  ".join(f"{step} {ms:,.0f} ms" for step, ms in row["cpu_milliseconds"].items())
    print(f"  {size:,} parameters: {steps}; peak {peak / 1e9:.2f} GB, {row['peak_in_models']:.1f} models", flush=True)
    return row


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4_460_106, help="parameters; one size a process, for its memory")
    parser.add_argument("--write", action="store_true", help="add to benchmarks/results/flower_two_lines.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    row = overhead(arguments.size)
    if arguments.write:
        path = Path(__file__).parent / "results" / "flower_two_lines.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        others = [one for one in known.get("messages", []) if one["parameters"] != arguments.size]
        write("flower_two_lines", {**known, "machine": machine(), "messages": [*others, row]})


if __name__ == "__main__":
    main()
