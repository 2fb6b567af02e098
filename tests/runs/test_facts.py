"""facts.json of a run folder: the clients' classes, and what a message is made of."""

import json

import pytest
import torch

from fedcef.algorithms import ALGORITHMS
from fedcef.problems.problem import Problem
from fedcef.runs.experiments import load_settings
from fedcef.runs.facts import client_facts
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run

SETTINGS = """
rounds = 3
num_clients = 4
local_steps = 2
batch_size = 8
[data]
name = "lasso"
dim = 200
samples = 20
support = 10
[compressor]
name = "topk"
ratio = 0.1
"""


def facts_of(tmp_path, *changes):
    (tmp_path / "tiny.toml").write_text(SETTINGS)
    folder = RunFolder.new(tmp_path / "run")
    summary = run(load_settings(str(tmp_path / "tiny.toml"), changes), folder)
    return json.loads((folder.path / "facts.json").read_text()), summary


def test_counts_every_class_of_every_client():
    clients = [(torch.zeros(3, 2), torch.tensor([5, 5, 7])), (torch.zeros(2, 2), torch.tensor([6, 5]))]
    problem = Problem.build(torch.nn.Linear(2, 8), torch.nn.functional.cross_entropy, clients)
    assert client_facts(problem) == {"samples": [3, 2], "classes": [5, 6, 7], "counts": [[2, 0, 1], [1, 1, 0]]}


@pytest.mark.parametrize("cohort", [0, 2])
def test_messages_by_part(tmp_path, cohort):
    facts, summary = facts_of(tmp_path, f"clients_per_round={cohort}", "algorithm.downlink=dense")
    assert facts["clients"] == {"samples": [20] * 4}
    up, down = facts["messages"]["up"], facts["messages"]["down"]
    assert [(part["name"], part["form"], part["values"]) for part in up["parts"]] == [("delta", "sparse", 4 * 20)]
    assert [(part["name"], part["form"], part["values"]) for part in down["parts"]] == [("z_tilde", "dense", 4 * 200)]
    senders = 3 * (cohort or 4)
    assert up["bytes"] == pytest.approx(summary["wire_up_bytes"] / senders, rel=0.1)
    assert down["bytes"] == summary["wire_down_bytes"] / senders or cohort


def test_a_seeded_message_has_its_key_as_indices(tmp_path):
    facts, _ = facts_of(tmp_path, "compressor.name=randk", "compressor.ratio=0.1")
    (part,) = facts["messages"]["up"]["parts"]
    assert (part["form"], part["values"], part["indices"]) == ("seeded", 80, 8)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_tells_what_its_messages_are(tmp_path, name):
    compressor = [] if ALGORITHMS[name].compresses else ["compressor.name=identity"]
    facts, _ = facts_of(tmp_path, f"algorithm.name={name}", "local_lr=0.001", *compressor)
    for message in facts["messages"].values():
        assert 0 < sum(part["values"] + part["indices"] for part in message["parts"]) < message["bytes"]


def test_a_message_is_one_of_its_whole_cohort(tmp_path):
    """Two of four clients send each entry, so that a client sends half of the 200, and the number of its column."""
    facts, summary = facts_of(
        tmp_path, "algorithm.name=compressed_scaffnew", "algorithm.senders=2", "compressor.name=identity"
    )
    up = facts["messages"]["up"]
    assert [(part["name"], part["values"]) for part in up["parts"]] == [("x", 4 * 100), ("column", 4)]
    assert up["bytes"] == summary["wire_up_bytes"] / (3 * 4)
