"""A server's knowledge on its disk, so that a run that was cut off can go on.

One checkpoint, written before a node hears of a new model: the models, their replicas and logs, and which messages of
which clients count.  What a strategy keeps to itself (momentum and the like) is not in it, and begins afresh.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from flwr.app import Array

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.flower.two_lines.channel import Channel
from fedcef.flower.two_lines.notation import text_of
from fedcef.flower.two_lines.server import Known, Server
from fedcef.runs.reader import Record
from fedcef.wire.checkpoint import read_checkpoint, write_checkpoint


def save(server: Server, path: Path, rounds: int, disk: Disk, record: Record) -> None:
    """Keep all that a server knows after so many rounds, with the record of the last of them."""
    header: dict[str, Any] = {
        "rounds": rounds,
        "record": record,
        "up": text_of(server.up),
        "down": text_of(server.down),
    }
    tensors = {}
    for number, (name, channel) in enumerate(server.channels.items()):
        known = {
            str(node): [k.client.hex(), k.version] for (run, node), k in server.known.items() if run == channel.run
        }
        memories = {client.hex(): memory.hex() for client, memory in server.clients.get(channel.run, {}).items()}
        header[f"channel-{number}"] = {
            "name": name,
            "run": channel.run.hex(),
            "layout": channel.layout.to_json(),
            "types": [array.dtype for array in channel.model.values()],
            "version": channel.version,
            "digest": channel.digest.hex(),
            "log": [[version, len(entry)] for version, entry in channel.log.items()],
            "known": known,
            "memories": memories,
        }
        tensors[f"replica-{number}"] = torch.from_numpy(channel.replica)
        tensors[f"log-{number}"] = _octets(b"".join(channel.log.values()))
        for at, array in enumerate(channel.model.values()):
            tensors[f"model-{number}-{at}"] = _octets(array.data)
    write_checkpoint(path, header, tensors, disk)


def load(server: Server, path: Path) -> tuple[int, Record]:
    """Put back what was saved, into a server with the same compressors; the rounds that were over, and their record."""
    header, tensors = read_checkpoint(path)
    begun = {"up": header["up"], "down": header["down"]}
    if (now := {"up": text_of(server.up), "down": text_of(server.down)}) != begun:
        raise RunError(f"The run was begun with {begun} and cannot go on with {now}; give the same compressors.")
    number = 0
    while (kept := header.get(f"channel-{number}")) is not None:
        described = zip(kept["layout"], kept["types"], strict=True)
        model = {
            name: Array(
                dtype=kind, shape=tuple(shape), stype="numpy.ndarray", data=_bytes(tensors[f"model-{number}-{at}"])
            )
            for at, ((name, _, shape), kind) in enumerate(described)
        }
        log = _bytes(tensors[f"log-{number}"])
        channel = Channel.restored(
            model,
            server.up,
            server.down,
            run=bytes.fromhex(kept["run"]),
            layout=kept["layout"],
            version=kept["version"],
            digest=bytes.fromhex(kept["digest"]),
            replica=tensors[f"replica-{number}"].numpy().copy(),
            log=log,
            lengths=kept["log"],
        )
        server.channels[kept["name"]] = channel
        for node, (client, version) in kept["known"].items():
            server.known[channel.run, int(node)] = Known(bytes.fromhex(client), version)
        memories = {bytes.fromhex(client): bytes.fromhex(memory) for client, memory in kept["memories"].items()}
        server.clients[channel.run] = memories
        number += 1
    return int(header["rounds"]), dict(header.get("record", {}))


def _octets(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()
