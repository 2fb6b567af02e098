"""Problems by name, from the options of a data section."""

import sys
import tomllib

import pytest
import torch

from fedcef.core.errors import ConfigError
from fedcef.core.parts import make
from fedcef.problems.catalog import DATA
from fedcef.problems.data.datasets import DATASETS
from fedcef.problems.matrix import low_rank
from fedcef.regularizers import Nuclear, Zero
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run
from fedcef.runs.settings import Settings


def build(num_clients=3, seed=2, model=None, **section):
    return make("data", DATA, section).build(num_clients, seed, model or {})


def test_every_data_set_is_a_problem():
    assert set(DATA) == {*DATASETS, "lasso", "matrix", "stdlib", "text", "leaf", "tff"}


def test_matrix_takes_its_options():
    options = {"size": 5, "rank": 2, "samples": 7, "heterogeneity": 0.5, "noise": 0.1}
    problem = build(name="matrix", **options)
    direct = low_rank(Zero(), num_clients=3, seed=2, **options)
    assert torch.equal(problem.train.inputs, direct.train.inputs)
    assert torch.equal(problem.train.targets, direct.train.targets)
    assert torch.equal(problem.truth, direct.truth)


def test_matrix_is_the_field_s_by_default():
    problem = build(num_clients=2, name="matrix")
    assert problem.train.inputs.shape == (2 * 128, 32, 32)
    assert int(problem.truth.sum()) == 16


@pytest.mark.parametrize(
    ("section", "model", "sentence"),
    [
        ({"name": "matrix", "rank": 33}, {}, "data.rank is 33; it must be at most data.size = 32"),
        ({"name": "matrix"}, {"name": "mlp"}, "leave the \\[model\\] section out"),
        ({"name": "matrix", "heterogeneity": -1.0}, {}, "data.heterogeneity is -1"),
        ({"name": "matrix", "rnak": 3}, {}, "data.rank"),
        ({"name": "lasso", "dim": 4, "support": 5}, {}, "data.support is 5; it must be at most data.dim = 4"),
        ({"name": "lasso"}, {"name": "mlp"}, "leave the \\[model\\] section out"),
    ],
)
def test_impossible_options_are_refused(section, model, sentence):
    with pytest.raises(ConfigError, match=sentence):
        build(model=model, **section)


def test_the_nuclear_norm_finds_the_matrix():
    config = Settings(num_clients=2, data={"name": "matrix", "size": 4, "rank": 1}, regularizer={"name": "nuclear"})
    h = config.build_problem().regularizer
    assert isinstance(h, Nuclear)
    assert h.matrices == ((0, 4, 4),)


# Parts of the user's own

OWN = """
import torch
from torch import nn

def by_parity(targets, num_clients, seed, first=0):
    order = torch.argsort(targets % 2, stable=True).roll(first)
    return order.tensor_split(num_clients)

def lists(targets, num_clients, seed):
    return [[i] for i in range(num_clients)]

def too_few(targets, num_clients, seed):
    return [targets]

def beyond(targets, num_clients, seed):
    return [[len(targets) + i] for i in range(num_clients)]

def words(targets, num_clients, seed):
    return ["many"] * num_clients

def narrow(input_shape, num_classes, width=4):
    features = torch.Size(input_shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(features, width), nn.ReLU(), nn.Linear(width, num_classes))

def number(input_shape, num_classes):
    return 7
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "parts_of_mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("parts_of_mine", None)


def digits(partition="iid", model=None, **options):
    section = {"name": "digits", "partition": partition, **options}
    return Settings(num_clients=3, data=section, model=model or {}).build_problem()


def test_a_partition_of_the_user_s_own(own):
    problem = digits("parts_of_mine:by_parity")
    assert problem.sizes.tolist() == [479, 479, 479]
    assert not (problem.client_samples(0).targets % 2).any()
    assert (problem.client_samples(2).targets % 2).all()
    moved = digits("parts_of_mine:by_parity", partition_options={"first": 5})
    assert int((moved.client_samples(0).targets % 2).sum()) == 5
    assert digits("parts_of_mine:lists").sizes.tolist() == [1, 1, 1]


def test_a_model_of_the_user_s_own(own):
    problem = digits(model={"name": "parts_of_mine:narrow"})
    assert problem.dim == 64 * 4 + 4 + 4 * 10 + 10
    assert torch.equal(problem.z0, digits(model={"name": "parts_of_mine:narrow"}).z0)  # its start follows the seed
    assert digits(model={"name": "parts_of_mine:narrow", "width": 2}).dim == 64 * 2 + 2 + 2 * 10 + 10


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"partition": "parts_of_mine:too_few"}, "must return sample numbers for each of the 3 clients"),
        ({"partition": "parts_of_mine:beyond"}, "dealt samples that do not exist; they are numbered 0 to 1436"),
        ({"partition": "parts_of_mine:words"}, "one sequence of sample numbers for each client"),
        ({"partition": "parts_of_mine:nobody"}, "parts_of_mine has no function or class nobody"),
        ({"partition": "parts_of_mine:lists", "partition_options": {"a": 1}}, "cannot be called with a"),
        ({"partition": "iid", "partition_options": {"a": 1}}, "partition_options are for a partition of your own"),
        ({"partition": "idd"}, "data.partition is 'idd'; it must be one of iid, .* Did you mean iid"),
        ({"model": {"name": "parts_of_mine:number"}}, "parts_of_mine:number returned int; it must return a torch.nn"),
        ({"model": {"name": "parts_of_mine:narrow", "wdth": 2}}, "cannot be called with wdth: .*'wdth'"),
        ({"model": {"name": "mlp", "width": 2}}, "There is no setting model.width"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit(own, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        digits(**options)


# A validation set

TEXT = {"name": "text", "context": 8, "test_windows": 12}


@pytest.mark.parametrize(
    ("section", "share"), [({"name": "digits"}, 0.25), (TEXT, 0.5), ({"name": "breast_cancer"}, 0.1)]
)
def test_a_part_of_the_test_set_is_set_aside(tmp_path, section, share):
    tiny = {"name": "gpt", "layers": 1, "heads": 1, "width": 8} if section is TEXT else {}
    if section is TEXT:
        for name in "abc":
            (tmp_path / f"{name}.txt").write_text(" ".join(f"{name}{n}" for n in range(200)))
        section = {**TEXT, "path": str(tmp_path)}
    whole, problem = build(model=tiny, **section), build(model=tiny, **section, validation_share=share)
    assert whole.validation is None
    assert len(problem.validation) == int(share * len(whole.test))
    assert len(problem.test) + len(problem.validation) == len(whole.test)
    together = torch.cat([problem.test.inputs, problem.validation.inputs]).flatten(1)
    key = lambda rows: sorted(map(tuple, rows.tolist()))  # noqa: E731
    assert key(together) == key(whole.test.inputs.flatten(1))
    for client in range(3):  # what clients hold stays as it is
        assert torch.equal(problem.client_samples(client).inputs, whole.client_samples(client).inputs)
    assert torch.equal(problem.z0, whole.z0)


def test_settings_stop_by_a_validation_set(tmp_path):
    data = {"name": "digits", "validation_share": 0.5}
    stop = {"measure": "validation_loss", "patience": 2}
    settings = Settings(rounds=60, local_lr=0.5, data=data, eval={"every": 1, "train_samples": 100}, stop=stop)
    assert "validation_share" not in Settings().to_toml()  # a run without one is written as it always was
    assert Settings(**tomllib.loads(settings.to_toml())).data["validation_share"] == 0.5
    summary = run(settings, RunFolder.new(tmp_path / "run"))
    assert {"accuracy", "validation_accuracy", "validation_loss"} <= summary.keys()
    assert summary["stopped_early"]


@pytest.mark.parametrize("section", [{"name": "digits", "validation_share": 1e-9}, {**TEXT, "test_share": 0.0}])
def test_a_share_of_nothing_is_refused(tmp_path, section):
    (tmp_path / "a.txt").write_text("abc " * 200)
    section = {"validation_share": 0.5, **section} | ({"path": str(tmp_path)} if section["name"] == "text" else {})
    with pytest.raises(ConfigError, match=r"a part of the test set, which has .* samples; take another share"):
        build(num_clients=1, **section)
