"""Data sets that compute their samples anew: each draw has its own, and runs repeat nevertheless."""

import random
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from fedcef import DataNote, FedAvg, Problem, ProblemError, clients, run

G = torch.Generator().manual_seed(0)
X, Y = torch.randn(12, 4, generator=G), torch.arange(12) % 3


class Noisy(Dataset):
    """Every sample with fresh noise, from all three generators that there are."""

    def __init__(self, rows, noise=1.0):
        self.rows, self.noise, self.asked = rows, noise, 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        self.asked += 1
        row = self.rows[place]
        drawn = torch.rand(()) + np.random.rand() + random.random()  # noqa: NPY002
        return X[row] + self.noise * float(drawn), int(Y[row])


def build(data, **options):
    torch.manual_seed(0)
    return Problem.build(nn.Linear(4, 3), cross_entropy, data, **options)


def noisy(noise=1.0, **options):
    with pytest.warns(DataNote, match="Samples of Noisy are fetched anew by its __getitem__ whenever they are drawn"):
        return build([Noisy(range(5), noise), Noisy(range(5, 12), noise)], **options)


def trained(problem, **options):
    parameters = run(problem, FedAvg(local_lr=0.1, local_steps=3), rounds=3, batch_size=4, **options).parameters
    return torch.cat([p.flatten() for _, p in sorted(parameters.items())])


def test_every_draw_is_another_one_and_a_run_repeats():
    problem = noisy()
    rows = torch.tensor([[[0, 0], [0, 1]]])
    take = problem.data.batches(torch.tensor([0]), rows)
    first, second = take(0).inputs[0]
    assert not torch.equal(first, second)
    assert not torch.equal(take(1).inputs[0, 0], first)
    assert torch.equal(take(0).inputs[0, 0], first)
    assert torch.equal(problem.data.batches(torch.tensor([0]), rows)(0).inputs[0, 0], first)
    assert not torch.equal(problem.data.batches(torch.tensor([0]), rows.flip(1))(1).inputs[0, 0], first)
    assert torch.equal(trained(problem), trained(noisy()))
    assert not torch.equal(trained(problem, seed=1), trained(problem))
    assert not torch.equal(trained(problem), trained(build([*problem.data.dataset.parts], live=False)))


def test_a_client_by_itself_draws_the_same():
    problem, rows = noisy(), torch.tensor([[[3, 1]]])
    alone = problem.data.only([1])
    whole = problem.data.batches(torch.tensor([1]), rows)(0)
    assert torch.equal(alone.batches(torch.tensor([0]), rows)(0).inputs, whole.inputs)


def test_a_run_that_was_cut_off_goes_on_bit_for_bit(tmp_path):
    class Stop(Exception):
        pass

    def stop(record):
        if record["round"] == 2:
            raise Stop

    options = {"snapshot_every": 1, "eval_every": 1}
    with pytest.raises(Stop):
        trained(noisy(), out=tmp_path, watch=stop, **options)
    assert torch.equal(trained(noisy(), out=tmp_path, resume=True, **options), trained(noisy(), **options))


def test_the_user_s_generators_are_left_alone():
    problem = noisy()
    states = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # noqa: NPY002
    problem.data.batches(torch.tensor([0]), torch.tensor([[[0, 1]]]))(0)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    assert random.getstate() == states[2]


@pytest.mark.parametrize("batch_size", [4, 0])
def test_what_draws_nothing_is_as_if_it_were_copied(batch_size):
    copied = build([(X[:5], Y[:5]), (X[5:], Y[5:])])
    for problem in (
        noisy(noise=0.0),
        noisy(noise=0.0, test=Noisy(range(4), 0.0)),
        build([(X[:5], Y[:5]), (X[5:], Y[5:])], live=True),
    ):
        ends = [run(p, FedAvg(local_lr=0.1), rounds=2, batch_size=batch_size).last for p in (problem, copied)]
        assert ends[0]["objective"] == ends[1]["objective"]


def test_which_are_copied_by_themselves():
    table = TensorDataset(X, Y)
    for data in (table, Subset(table, [1, 2]), ConcatDataset([table, table]), [(X[0], 0), (X[1], 1)]):
        assert build([data]).notes == ()
        assert len(build([data]).train)
    asked = Noisy(range(12))
    copied = build([asked], live=False)
    assert asked.asked == 12
    run(copied, FedAvg(local_lr=0.1), rounds=1)
    assert asked.asked == 12
    with pytest.warns(DataNote, match="Samples of Noisy"):
        assert build([Subset(asked, [1, 2]), (X, Y)]).sizes.tolist() == [2, 12]


def test_one_data_set_of_all_clients():
    with pytest.warns(DataNote, match="Samples of Noisy"):
        problem = build(Noisy(range(12), 0.0), client_ids=list("abcabcabcabc"))
    assert problem.client_ids == ("a", "b", "c")
    assert problem.client_samples(1).targets.tolist() == [1, 1, 1, 1]
    assert torch.equal(problem.client_samples(1).inputs, X[1::3])


def test_what_cannot_be_fetched():
    with pytest.raises(ProblemError, match=re.escape("The data of client 1 is empty; leave the client out")):
        build([Noisy(range(3)), Noisy(range(0))], live=True)
    with pytest.raises(ProblemError, match=r"The data of client 1 must be an .* pair of tensors or a map-style"):
        build([Noisy(range(3)), None])
    words = [(X[0], "a"), (X[1], "b")]
    with pytest.raises(ProblemError, match="name the classes in their order"):
        build(clients.from_dataset(words, [[0], [1]]))


class Shaken(TensorDataset):
    """A kind of torch's own data set that computes its samples nevertheless."""

    def __getitem__(self, place):
        x, y = super().__getitem__(place)
        return x + torch.rand(()), y


class ShakenSubset(Subset):
    def __getitem__(self, place):
        x, y = super().__getitem__(place)
        return x + torch.rand(()), y

    def __getitems__(self, places):
        return [self[place] for place in places]


@pytest.mark.parametrize(
    "data", [Shaken(X, Y), ShakenSubset(TensorDataset(X, Y), range(12)), Subset(Shaken(X, Y), [0])]
)
def test_a_kind_of_a_data_set_that_is_copied_is_not_if_it_computes_its_samples(data):
    with pytest.warns(DataNote, match="Samples of Shaken(Subset)? are fetched anew"):
        problem = build([data])
    first, second = problem.data.batches(torch.tensor([0]), torch.tensor([[[0, 0]]]))(0).inputs[0]
    assert not torch.equal(first, second)


def test_samples_that_are_dictionaries_are_refused_in_a_sentence():
    with pytest.raises(ProblemError, match=r"A sample of client 0 is a dictionary \(x, y\); give pairs"):
        build([[{"x": X[0], "y": Y[0]}]])
