"""The mistakes that users are most likely to make: one sentence on what is wrong and what to do, and exit code 2."""

import sys

import pytest

from fedcef.core.extras import install_extra

TINY = ["--set", "rounds=2", "--set", "num_clients=3", "--set", "model.name=softmax"]
OWN = """
import torch
from torch import nn
from fedcef import Problem

def build(inputs, targets):
    client = inputs, torch.zeros(targets, dtype=torch.int64)
    return Problem.build(nn.Linear(3, 2), nn.functional.cross_entropy, [client, client])

def nan(num_clients, seed, clients):
    return build(torch.tensor([[1.0, 2.0, float("nan")]]).repeat(4, 1), 4)

def features(num_clients, seed, clients):
    return build(torch.ones(4, 5), 4)

def pairs(num_clients, seed, clients):
    return build(torch.ones(4, 3), 6)
"""
ZHANG = ["--set", "algorithm.name=zhang", "--set", "compressor.name=identity"]
OF_MY_OWN = ["--set", "num_clients=2", "--set", "model={}"]


@pytest.fixture(autouse=True)
def _lying_around(tmp_path):
    """What users have in their folders."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "broken.toml").write_text("rounds = = 3\n")
    (tmp_path / "my_problem_with_mistakes.py").write_text(OWN)
    yield
    sys.modules.pop("my_problem_with_mistakes", None)


def own(name):
    return ["run", "demo", *OF_MY_OWN, "--set", f"data.name=my_problem_with_mistakes:{name}"]


MISTAKES = {
    "an experiment misspelt": (["run", "dmeo"], "There is no experiment 'dmeo'; there are", "Did you mean demo?"),
    "a setting misspelt": (["run", "demo", "--set", "compresor.ratio=1"], "There is no setting", "compressor?"),
    "an option misspelt": (["run", "demo", "--set", "compressor.ratoi=1"], "there are compressor.name,", "ratio?"),
    "a word for a number": (["run", "demo", "--set", "rounds=many"], "rounds is 'many'; it must be a valid integer."),
    "a ratio above 1": (["run", "demo", "--set", "compressor.ratio=1.5"], "must be less than or equal to 1."),
    "an algorithm misspelt": (["run", "demo", "--set", "algorithm.name=fedceff"], "must be one of", "mean fedcef?"),
    "a compressor misspelt": (["run", "demo", "--set", "compressor.name=top-k"], "must be one of", "mean topk?"),
    "a regulariser misspelt": (["run", "demo", "--set", "regularizer.name=l_1"], "must be one of", "mean l1?"),
    "a section as a word": (["run", "demo", "--set", "compressor=topk"], "Write compressor.name=topk."),
    "a data set misspelt": (["run", "demo", "--set", "data.name=minst"], "must be one of digits,", "mean mnist?"),
    "a data set that is not here": (["run", "demo", "--set", "data.name=mnist"], "run: fedcef data get mnist"),
    "a data set to get misspelt": (["data", "get", "minst"], "There is no data set 'minst'", "Did you mean mnist?"),
    "--set without =": (["run", "demo", "--set", "rounds"], "--set takes key=value, for example"),
    "a list for one run": (["run", "demo", "--set", "seed=[0,1]"], "Lists are for `fedcef sweep`"),
    "a list without brackets": (["sweep", "demo", "--set", "seed=0,1"], "written so: --set 'seed=[0,1]'."),
    "an empty list": (["sweep", "demo", "--set", "seed=[]"], "sweeps over nothing; give at least one value."),
    "more in a round than all": (["run", "demo", "--set", "clients_per_round=11"], "between 1 and num_clients = 10"),
    "no GPU": (["run", "demo", "--set", "device=cuda"], "torch sees no CUDA device here; use device = 'cpu'."),
    "a budget in words": (["run", "demo", "--budget", "lots"], "must be a number of bytes such as 300MB or 1e9."),
    "TOML with a slip": (["run", "broken.toml"], "is not valid TOML: Invalid value (at line 1, column 10)."),
    "a file that is not there": (["run", "missing.toml"], "There is no file missing.toml."),
    "a folder for a file": (["run", "folder.toml"], "There is no file folder.toml."),
    "nothing to resume": (["run", "--resume", "empty"], "empty holds no run to resume; there is no config.toml in it."),
    "nothing to plot": (["plot", "empty"], "There are no runs to plot; give folders that"),
    "nothing to report": (["report", "empty"], "empty holds no runs; give folders that"),
    "nothing to export": (["export", "empty"], "empty holds no run; give a folder that"),
    "a folder that cannot be": (["run", "demo", *TINY, "--out", "file/run"], "cannot be written", "choose another"),
    "a file in the way": (["compare", "demo", *TINY, "--out", "file"], "is a file, not a folder", "another --out."),
    "NaN among the data": (own("nan"), "The inputs of client 0 have NaN or infinite values in 4 of 4 samples; leave"),
    "a model for other data": (own("features"), "cannot take a batch of client 0 (inputs (2, 5)"),
    "more targets than inputs": (own("pairs"), "The data of client 0 has 4 inputs but 6 targets."),
    "no such module": (["run", "demo", *OF_MY_OWN, "--set", "data.name=nowhere:build"], "no module nowhere;"),
    "a tracker misspelt": (["run", "demo", *TINY, "--track", "wandbb"], "There is no tracker 'wandbb'; there are"),
    "nothing to run": (["run"], "Give an experiment to run, or --resume"),
    "a word for a ratio": (["run", "demo", "--set", "compressor.ratio=tiny"], "is 'tiny'; it must be a valid number"),
    "a method's option misspelt": (["run", "demo", "--set", "algorithm.mixin=1"], "Did you mean algorithm.mixing?"),
    "an option of evaluation misspelt": (["run", "demo", "--set", "eval.evry=2"], "Did you mean eval.every?"),
    "no rounds": (["run", "demo", "--set", "rounds=0"], "rounds is 0; it must be greater than or equal to 1."),
    "a negative step": (["run", "demo", "--set", "local_lr=-1"], "local_lr is -1; it must be greater than 0."),
    "a device that is none": (["run", "demo", "--set", "device=tpu9"], "device is 'tpu9'; it must be"),
    "an option of the deal": (["run", "demo", "--set", "data.alpha=0"], "data.alpha is 0; it must be greater than 0."),
    "more clients than samples": (["run", "demo", "--set", "num_clients=5000"], "5000 clients"),
    "a compressor too many": (["run", "demo", "--set", "algorithm.name=zhang"], "no place for the compressor topk;"),
    "a method for all clients": (["run", "demo", *ZHANG, "--set", "clients_per_round=2"], "needs all clients"),
    "a pattern without parameters": (["run", "demo", "--set", "regularizer.on=conv*"], "matches no parameter; there"),
    "a budget without ratios": (["run", "demo", *ZHANG, "--budget", "1GB"], "A budget chooses how many entries"),
    "a resumed run changed": (["run", "--resume", "empty", "--budget", "1GB"], "leave out --budget, --out and any"),
    "a folder that is not there": (["run", "--resume", "nowhere"], "nowhere holds no run to resume"),
    "a variant misspelt": (["sweep", "demo", "--only", "FedSGD"], "no variant 'FedSGD' to keep by --only; there"),
    "the same for a frontier": (["frontier", "demo", "--only", "FedSGD"], "no variant 'FedSGD' to keep by --only"),
    "nothing for a frontier": (["plot", "nowhere", "--frontier"], "There are no runs to plot"),
    "nothing for the paper": (["plot", "nowhere", "--paper"], "There are no runs to plot"),
    "a command misspelt": (["runn", "demo"], "No such command 'runn'. Did you mean 'run'?"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_one_sentence_and_exit_code_2(fedcef, tmp_path, name, monkeypatch):
    if name == "no GPU":
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    arguments, *says = MISTAKES[name]
    result = fedcef(*arguments)
    assert result.code == 2
    for words in says:
        assert words in result.sentence
    assert not list(tmp_path.rglob("summary.json"))


def test_a_folder_with_a_run_is_not_overwritten(fedcef):
    assert fedcef("run", "demo", *TINY, "--out", "mine").code == 0
    again = fedcef("run", "demo", *TINY, "--out", "mine")
    assert again.code == 2
    assert "mine already holds a run; go on with it by `fedcef run --resume mine`, or choose" in again.sentence
    confused = fedcef("run", "mine")
    assert confused.code == 2
    assert "mine is the folder of a run; go on with it by `fedcef run --resume mine`." in confused.sentence


@pytest.mark.parametrize(
    ("package", "arguments", "says", "extra"),
    [
        ("sklearn.datasets", ["run", "demo", *TINY], "scikit-learn, which is missing; run: ", "data"),
        ("matplotlib", ["plot", "mine"], "matplotlib is needed; install it with: ", "plot"),
    ],
)
def test_a_missing_package_names_the_command(fedcef, monkeypatch, package, arguments, says, extra):
    assert fedcef("run", "demo", *TINY, "--out", "mine").code == 0
    monkeypatch.setitem(sys.modules, package, None)
    result = fedcef(*arguments)
    assert result.code == 2
    assert says + install_extra(extra) in result.sentence
