"""The same samples from every source, and in one table."""

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from fedcef import Problem, clients
from fedcef.regularizers import L1


class Rows:
    """What is used of a `datasets.Dataset`: rows by number, a column by name."""

    def __init__(self, columns):
        self.columns, self.column_names = columns, list(columns)

    def __getitem__(self, what):
        if isinstance(what, str):
            return self.columns[what]
        return {name: [column[row] for row in what] for name, column in self.columns.items()}


def tables(count=12, equal=False, dtype=torch.float32):
    """Each client's inputs and targets."""
    g = torch.Generator().manual_seed(3)
    sizes = [6 if equal else 3 + i % 4 for i in range(count)]
    return [(torch.randn(n, 4, generator=g).to(dtype), torch.randint(0, 3, (n,), generator=g)) for n in sizes]


def pool_of(shards):
    """All samples in another order than the clients', and where each client's are."""
    inputs, targets = torch.cat([x for x, _ in shards]), torch.cat([y for _, y in shards])
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(5))
    places = torch.argsort(order)
    return inputs[order], targets[order], list(places.split([len(x) for x, _ in shards]))


def from_function(shards, folder, **options):
    return clients.from_function(lambda client: shards[client], len(shards), **options)


def from_sized_function(shards, folder):
    return from_function(shards, folder, sizes=[len(x) for x, _ in shards])


def from_arrays(shards, folder):
    return clients.from_arrays(*pool_of(shards))


def from_dataset(shards, folder):
    *arrays, indices = pool_of(shards)
    return clients.from_dataset(TensorDataset(*arrays), indices)


def from_npz(shards, folder):
    for i, (x, y) in enumerate(shards):
        np.savez(folder / f"{i:03}.npz", inputs=x.numpy(), targets=y.numpy())
    return clients.from_folder(folder)


def from_safetensors(shards, folder):
    for i, (x, y) in enumerate(shards):
        save_file({"x": x, "y": y}, folder / f"client-{i}.safetensors")
    return clients.from_folder(folder, "client-{}.safetensors", len(shards), inputs="x", targets="y")


def from_rows(shards, folder):
    *arrays, indices = pool_of(shards)
    ids = torch.empty(len(arrays[0]), dtype=torch.int64)
    rank = torch.empty_like(ids)  # a client's rows keep their order, so they must lie in it
    for i, where in enumerate(indices):
        ids[where.sort().values], rank[where.sort().values] = i, torch.arange(len(where))
    inputs = [shards[i][0][r].tolist() for i, r in zip(ids.tolist(), rank.tolist(), strict=True)]
    targets = [int(shards[i][1][r]) for i, r in zip(ids.tolist(), rank.tolist(), strict=True)]
    return clients.from_hugging_face(Rows({"user": ids.tolist(), "x": inputs, "y": targets}), "user", "x", "y")


SOURCES = {
    "function": from_function,
    "function with sizes": from_sized_function,
    "arrays": from_arrays,
    "data set": from_dataset,
    "npz": from_npz,
    "safetensors": from_safetensors,
    "rows": from_rows,
}
KNOWN = ("function with sizes", "arrays", "data set", "rows")
"""Those that know sizes before they read."""


def problem(data, hidden=0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3)) if hidden else nn.Linear(4, 3)
    return Problem.build(model, cross_entropy, data, test=tables(1)[0], regularizer=L1(1e-3))
