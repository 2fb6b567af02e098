"""What the processes of a distributed run do in tests: play, write, fail and are interrupted, each in its turn."""

import os
import shutil
import signal
from pathlib import Path

import torch
import torch.distributed as dist

import fedcef
from fedcef.algorithms import ALGORITHMS, FedCEF
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError, FedcefError
from fedcef.problems.problem import Problem
from fedcef.regularizers import L1
from fedcef.simulation.engine import Engine
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.stores.filed import Filed
from fedcef.simulation.workers import together

LATE = {"preset": "3g", "deadline": 0.4, "over_selection": 1.4, "at_least": 2}
METHODS = {
    "fedcef": {},
    "fedcef in chunks": {"cohort_chunk": 2},
    "fedcef with all clients": {"clients_per_round": 0},
    "fedavg": {},
    "fedavg in memory": {"store": "memory"},
    "fedcef in memory": {"store": "memory"},
    "fedavg by weights": {"weights": torch.arange(1.0, 12.0)},
    "scaffold": {},
    "tamuna": {"senders": 3},
    "fedcef with a clock": {"network": {"preset": "3g"}},
    "fedavg with a clock": {"network": {"preset": "3g"}},
    **{f"{name} with late ones": {"network": LATE} for name in ("fedcef", "fedavg", "scaffold")},
    "fedcef with late ones in chunks": {"network": LATE, "cohort_chunk": 2, "store": "memory"},
    "fedcef with late ones in memory": {"network": LATE, "store": "memory"},
}


STORES = {
    "memory": {"name": "memory"},
    "bfloat16": {"name": "memory", "code": "bfloat16"},
    "nonzeros": {"name": "host", "code": "nonzeros"},
    "disk": {"name": "disk"},
}


def problem() -> Problem:
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    clients = [(torch.randn(12, 6, generator=draw), torch.randint(3, (12,), generator=draw)) for _ in range(11)]
    return Problem.build(torch.nn.Linear(6, 3), torch.nn.functional.cross_entropy, clients, regularizer=L1(1e-3))


def method(name, **options):
    kind = ALGORITHMS[name.split()[0]]
    compressor = {"compressor": TopK(ratio=0.2)} if kind.compresses else {}
    return kind(local_lr=0.05, local_steps=3, regularizer=L1(1e-3), **compressor, **options)


def simulation(name, **options):
    options = {"batch_size": 4, "clients_per_round": 5, "oracle": "loop", **METHODS[name], **options}
    chosen = {"senders": options.pop("senders")} if "senders" in options else {}
    return Simulation(problem(), method(name, **chosen), **options)


def played(name, **options):
    """What there is after four rounds."""
    run = simulation(name, **options)
    for _ in range(4):
        run.step()
    scalars = {name: float(value) for name, value in run.diagnostics().items()}
    return {"parts": run.parts(), "totals": run.ledger.totals(), "finite": bool(run.state.finite), "scalars": scalars}


def run(out=None, **options):
    options = {"rounds": 6, "eval_every": 2, "batch_size": 4, "clients_per_round": 5, "snapshot_every": 2, **options}
    options |= {"oracle": "loop"}  # torch needs seconds to prepare its vmap, in every process
    algorithm = FedCEF(local_lr=0.05, local_steps=3, compressor=TopK(ratio=0.2))
    return fedcef.run(problem(), algorithm, out=out, **options)


def member(rank: int, size: int, folder: str) -> None:
    """One of the processes: leaves what it saw in the folder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{size}", rank=rank, world_size=size)
    seen = {"played": {name: played(name) for name in METHODS}} if size == 4 else runs(rank, Path(folder))
    torch.save(seen, Path(folder) / f"seen-{size}-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def runs(rank: int, folder: Path) -> dict:
    """Runs as `fedcef.run` does them: whole, interrupted and gone on with, and failing in one process."""
    watched: list[int] = []
    whole = run(folder / "whole", watch=lambda record: watched.append(record["round"]))
    seen = {"records": whole.records, "watched": watched, "in memory": run().records}
    with patched(Engine, "local", interrupting(rank)):
        seen["interrupted"] = raised(lambda: run(folder / "interrupted"))
    seen["gone on"] = run(folder / "interrupted", resume=True).records
    with patched(Engine, "local", failing(rank)):
        seen["failed"] = raised(lambda: run(folder / "failed"))
    for store in STORES:
        written: list[list[int]] = []
        with patched(Filed, "write", noting(written)):
            seen[store] = run(folder / store, store=STORES[store]).records
        seen[f"{store}, written"] = written
        with patched(Engine, "local", interrupting(rank)):
            raised(lambda store=store: run(folder / f"{store}, interrupted", store=STORES[store]))
        shutil.copytree(folder / f"{store}, interrupted", folder / f"{store}, left") if rank == 0 else None
        seen[f"{store}, gone on"] = run(folder / f"{store}, interrupted", store=STORES[store], resume=True).records
    with patched(Engine, "close", straying(rank)):
        seen["strayed"] = raised(run)
    seen["refused"] = raised(lambda: run(folder / "refused", workers="local"))
    return seen


def noting(written):
    def write(original, file, clients, rows):
        written.append(clients.tolist())
        return original(file, clients, rows)

    return write


def interrupting(rank):
    def local(original, engine, replica, mine, round_):
        if rank == 1 and int(round_.number) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return original(engine, replica, mine, round_)

    return local


def failing(rank):
    def local(original, engine, replica, mine, round_):
        if rank == 1 and int(round_.number) == 3:
            raise ConfigError("Something is wrong here.")
        return original(engine, replica, mine, round_)

    return local


def straying(rank):
    def close(original, *args):
        after, down, sizes = original(*args)
        if rank == 1:
            after.replica["z"][0] += 1e-6
        return after, down, sizes

    return close


def raised(call) -> str:
    """What a call ends with."""
    try:
        with together():
            call()
    except (FedcefError, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


class patched:
    """A method replaced for a while by one that is given the original."""

    def __init__(self, owner, name, instead):
        self.owner, self.name, self.instead, self.original = owner, name, instead, getattr(owner, name)

    def __enter__(self):
        original, instead = self.original, self.instead
        setattr(self.owner, self.name, lambda *args: instead(original, *args))

    def __exit__(self, *error):
        setattr(self.owner, self.name, self.original)
