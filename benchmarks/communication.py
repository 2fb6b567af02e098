"""Where every byte of a FedCEF round goes: indices, values and headers, up and down.

python benchmarks/communication.py [--ratio 0.01] [--clients 10]

What is counted is the parts of frames that were encoded and decoded again.  The vectors are random, not from training:
heavy tails (normal times log-normal), with sizes that the clients have partly in common, so that their Top-k supports
overlap about as much as was seen on CIFAR-10 (a union of 4.6 to 8.3% of p for ten times 1%).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcef.algorithms import FedCEF
from fedcef.algorithms.received import Received
from fedcef.compressors import TopK
from fedcef.core.rng import Key, round_key
from fedcef.wire import Dense, FrameKind, Payload, Relay, Sparse, decode, encode
from fedcef.wire.values.values import as_values

DIM = 4_460_106  # of the paper's CIFAR-10 network
ROUNDS = 400
SHARED, OWN = 0.8, 0.3  # spreads of the log-sizes that clients have in common and of their own


@dataclass(frozen=True)
class Parts:
    """The bytes of a frame by what they are for."""

    form: str
    indices: int
    values: int
    total: int

    def cells(self) -> str:
        return f"{self.indices:,} | {self.values:,} | {self.total - self.indices - self.values:,}"


def vectors(clients: int) -> Tensor:
    random = torch.Generator().manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(DIM, generator=random)

    size = SHARED * normal()
    return torch.stack([normal() * (size + OWN * normal()).exp() for _ in range(clients)])


def parts(frame: bytes) -> Parts:
    (payload,) = decode(frame).message.values()
    return Parts(*_payload(payload), len(frame))


def _payload(payload: Payload) -> tuple[str, int, int]:
    """Form, bytes of indices and bytes of values."""
    if isinstance(payload, Relay):
        rows = [_payload(row) for row in payload.parts.rows()]
        return "relay", sum(row[1] for row in rows), sum(row[2] for row in rows)
    if isinstance(payload, Sparse):
        values = int(as_values(payload.values).nbytes())
        return "sparse", len(payload.encode()) - 10 - values, values  # form, type, dim and count are headers
    return "dense", 0, len(payload.encode()) - 6


def show(scheme: str, up: Parts, down: Parts, clients: int) -> None:
    whole = ROUNDS * clients * (up.total + down.total) / 1e9
    both = f"{up.total + down.total:,}"
    print(f"| {scheme} | {up.cells()} | {down.form} | {down.cells()} | {both} | {whole:.2f} GB |", flush=True)


def measure(algorithm: FedCEF, x: Tensor) -> tuple[Parts, Parts]:
    """The frames of one round in which the clients' differences v_i - c_i are x."""
    clients = len(x)
    key = round_key(0, 0, torch.arange(clients))
    payloads = [algorithm.compressor.compress(x[i], Key(key.shared, key.own[i])) for i in range(clients)]
    start = x[0].new_zeros(DIM)
    received = Received.of({"delta": payloads}, key.shared)
    down, _ = algorithm.server_step(algorithm.server_init(start), algorithm.replica_init(start), received)
    return parts(encode({"delta": payloads[0]}, FrameKind.UP, 0)), parts(encode(down, FrameKind.DOWN, 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ratio", type=float, default=0.01)
    parser.add_argument("--clients", type=int, default=10)
    given = parser.parse_args()
    x = vectors(given.clients)
    base = FedCEF(local_lr=0.06, compressor=TopK(ratio=given.ratio))
    kept = torch.stack([base.compressor.compress(row, round_key(0, 0, torch.arange(1))).dense() != 0 for row in x])
    union = float(kept.any(0).float().mean())
    print(f"p = {DIM:,}, N = {given.clients}, r = {given.ratio:g}; the supports' union is {union:.3f} of p")
    print("| scheme | up: indices | values | headers | down: form | indices | values | headers | both | whole run |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    whole = parts(encode({"delta": Dense(x[0])}, FrameKind.UP, 0))
    show("uncompressed", whole, whole, given.clients)
    show("float32 up, dense down (the paper)", *measure(replace(base, downlink="dense"), x), given.clients)
    for values in ("native", "uniform8", "uniform4", "log3", "sign"):
        up = TopK(ratio=given.ratio, values=values)
        name = "float32" if values == "native" else values
        show(f"{name}, increment", *measure(replace(base, compressor=up), x), given.clients)
    for values, ratio in (("uniform8", 0.05), ("uniform4", 0.05), ("log3", 0.05), ("uniform4", 0.02), ("sign", 0.02)):
        up, down = TopK(ratio=given.ratio, values=values), TopK(ratio=ratio, values=values)
        lossy = replace(base, compressor=up, downlink="lossy", down_compressor=down)
        show(f"{values}, lossy {ratio:g}", *measure(lossy, x), given.clients)


if __name__ == "__main__":
    main()
