"""Problems by name, from the options of a data section."""

import pytest
import torch

from fedcef.core.errors import ConfigError
from fedcef.core.parts import make
from fedcef.problems.catalog import DATA
from fedcef.problems.data.datasets import DATASETS
from fedcef.problems.matrix import low_rank
from fedcef.regularizers import Nuclear, Zero
from fedcef.runs.settings import Settings


def build(num_clients=3, seed=2, model=None, **section):
    return make("data", DATA, section).build(num_clients, seed, model or {})


def test_every_data_set_is_a_problem():
    assert set(DATA) == {*DATASETS, "lasso", "matrix"}


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
