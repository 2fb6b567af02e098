"""A small run that is interrupted as a kill would."""

from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run

SETTINGS = """
name = "tiny"
rounds = 8
num_clients = 4
local_steps = 3
local_lr = 0.01
batch_size = 8
snapshot_every = 3
eval.every = 2

[data]
name = "lasso"
dim = 40
samples = 20
support = 10

[regularizer]
name = "l1"
weight = 0.05

[algorithm]
name = "fedcef"
mixing = 0.5

[compressor]
name = "topk"
ratio = 0.1
"""


class Killed(BaseException):
    """Stands for a kill: nothing gets to clean up."""


def run_in(path, settings, *changes, stop_after=None, notes=None):
    """Begin a run or go on with it; notes are collected in a list, if one is given."""

    def watch(record):
        if "note" in record and notes is not None:
            notes.append(record["note"])
        if stop_after is not None and record.get("round") == stop_after:
            raise Killed

    config = load_settings(settings, changes)
    if (path / "config.toml").exists():
        return run(config, RunFolder.open(path), resume=True, watch=watch)
    return run(config, RunFolder.new(path), watch=watch)


def without_time(folder):
    """The records of a run, but for its pace."""
    return [{k: v for k, v in record.items() if k != "wall_s"} for record in RunFolder(folder).records()]
