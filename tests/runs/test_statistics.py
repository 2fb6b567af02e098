"""A run folder with averaged statistics: cut off by kill -9, it goes on to the same bits."""

import multiprocessing
import signal
import time

import torch
from torch import nn

from fedcef import Problem
from fedcef.runs.facts import Facts
from fedcef.runs.reader import RunReader

from .setting import run_in, without_time

SETTINGS = f"""
rounds = 40
num_clients = 6
clients_per_round = 3
local_steps = 2
local_lr = 0.05
batch_size = 4
averaging = 0.8
snapshot_every = 7
eval.every = 5
data.name = "{__name__}:build_problem"
algorithm.name = "fedcef"
compressor.name = "topk"
compressor.ratio = 0.3
"""


def build_problem(num_clients, seed, clients):
    draw = torch.Generator().manual_seed(seed)
    data = [(torch.randn(9, 4, generator=draw), torch.randint(0, 3, (9,), generator=draw)) for _ in range(num_clients)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    return Problem.build(model, nn.functional.cross_entropy, data, test=data[0], buffers="mean")


def parts(facts: Facts) -> dict[str, dict[str, int]]:
    return {part["name"]: part for part in facts["parts"]}


def test_kill_9(tmp_path):
    settings, whole, cut = tmp_path / "net.toml", tmp_path / "whole", tmp_path / "cut"
    settings.write_text(SETTINGS)
    run_in(whole, str(settings))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedcef.runs.run", "fedcef.runs.experiments", "torch._dynamo"])
    process = context.Process(target=run_in, args=(cut, str(settings)))
    process.start()
    while process.is_alive() and not (
        (cut / "rounds.jsonl").exists() and len((cut / "rounds.jsonl").read_bytes()) > 3000
    ):
        time.sleep(0.0005)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (cut / "summary.json").exists()
    run_in(cut, str(settings))
    assert without_time(cut) == without_time(whole)
    for file in ("snapshot.bin", "model.safetensors"):
        assert (cut / file).read_bytes() == (whole / file).read_bytes()

    model, facts = RunReader(whole).model(), RunReader(whole).facts["messages"]
    assert model["1.num_batches_tracked"] > 70
    assert not torch.equal(model["1.running_mean"], torch.zeros(6))
    for direction in ("up", "down"):
        assert parts(facts[direction])["statistics"] == {
            "name": "statistics",
            "form": "dense",
            "values": 52,
            "indices": 0,
        }
