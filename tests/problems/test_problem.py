"""Problems from a module and the clients' data, and the sentences for what cannot be one."""

import re
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Subset, TensorDataset

from fedcef.core.errors import ProblemError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.problem import Problem, Samples
from fedcef.regularizers import L1, Zero


def table(count, seed=0, features=4):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(count, features, generator=g), torch.randint(0, 3, (count,), generator=g)


def build(model=None, loss=cross_entropy, clients=None, **options):
    return Problem.build(model or nn.Linear(4, 3), loss, clients or [table(6), table(2, seed=1)], **options)


def refused(sentence):
    return pytest.raises(ProblemError, match=re.escape(sentence))


def test_from_tensors():
    model, shards, test = nn.Linear(4, 3), [table(6), table(2, seed=1), table(5, seed=2)], table(7, seed=3)
    h = L1(0.1)
    problem = build(model, clients=shards, test=test, regularizer=h)
    assert problem.num_clients == 3
    assert problem.sizes.tolist() == [6, 2, 5]
    assert problem.starts.tolist() == [0, 6, 8]
    assert problem.dim == 15
    assert problem.layout.names == ("weight", "bias")
    assert torch.equal(problem.z0, nn.utils.parameters_to_vector(model.parameters()))
    assert not problem.z0.requires_grad
    assert problem.regularizer is h
    assert problem.classifies
    assert problem.truth is None
    for i, (inputs, targets) in enumerate(shards):
        samples = problem.client_samples(i)
        assert len(samples) == len(inputs)
        assert torch.equal(samples.inputs, inputs)
        assert torch.equal(samples.targets, targets)
    assert torch.equal(problem.test.inputs, test[0])
    assert torch.equal(problem.test.targets, test[1])


def test_what_may_be_left_out():
    problem = build()
    assert isinstance(problem.regularizer, Zero)
    assert problem.test is None


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: TensorDataset(x, y),
        lambda x, y: Subset(TensorDataset(torch.cat([x * 0, x]), torch.cat([y, y])), range(len(x), 2 * len(x))),
        lambda x, y: [(a.numpy(), int(b)) for a, b in zip(x, y, strict=True)],
        lambda x, y: [x, y],
        lambda x, y: (x.numpy(), y.numpy()),
        Samples,
    ],
    ids=["data set", "subset", "list of samples", "list of two tensors", "arrays", "samples"],
)
@pytest.mark.parametrize("count", [1, 2, 6])
def test_forms_of_a_client_s_data(form, count):
    x, y = table(count)
    samples = build(clients=[form(x, y)], test=form(x, y)).client_samples(0)
    assert torch.equal(samples.inputs, x)
    assert torch.equal(samples.targets, y)
    assert samples.targets.dtype == torch.int64


def test_the_first_samples_of_a_client():
    problem = build()
    assert torch.equal(problem.client_samples(1, 1).inputs, table(2, seed=1)[0][:1])
    assert len(problem.client_samples(1, 50)) == 2
    assert len(problem.client_samples(1)) == 2


def test_outputs_use_the_given_parameters_and_leave_the_module_s_alone():
    model = nn.Linear(4, 3)
    problem, before = build(model), deepcopy(model.state_dict())
    x = torch.arange(15.0)
    inputs = table(5)[0]
    expected = inputs @ x[:12].view(3, 4).T + x[12:]
    assert torch.allclose(problem.outputs(model, x, inputs), expected)
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)


def test_the_start_is_a_copy():
    model = nn.Linear(4, 3)
    problem = build(model)
    before = problem.z0.clone()
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(problem.z0, before)


def test_regression_does_not_classify():
    x = table(5)[0]
    problem = build(nn.Linear(4, 1), nn.functional.mse_loss, [(x, x[:, :1])])
    assert not problem.classifies


def test_another_floating_type_leaves_the_user_s_module_alone():
    model = nn.Linear(4, 3)
    problem = build(model, test=table(3))
    double = problem.to("cpu", torch.float64)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert problem.z0.dtype == problem.train.inputs.dtype == torch.float32
    assert {p.dtype for p in double.model.parameters()} == {torch.float64}
    assert double.z0.dtype == double.train.inputs.dtype == double.test.inputs.dtype == torch.float64
    assert double.train.targets.dtype == double.test.targets.dtype == torch.int64
    assert torch.equal(double.z0.float(), problem.z0)
    assert double.regularizer is problem.regularizer


def test_shared_parameters_are_one_stretch():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).tanh())

    model = Tied()
    problem = build(model)
    assert problem.layout.names == ("first.weight",)
    x = torch.randn(16, generator=torch.Generator().manual_seed(0))
    weight, inputs = x.view(4, 4), table(3)[0]
    assert torch.allclose(problem.outputs(model, x, inputs), (inputs @ weight.T).tanh() @ weight.T, atol=1e-6)
    state = problem.state_dict(x)
    assert state.keys() == model.state_dict().keys() == {"first.weight", "second.weight"}
    model.load_state_dict(state)
    assert torch.equal(model.second.weight, weight)
    assert state["first.weight"].data_ptr() != state["second.weight"].data_ptr()  # as safetensors wants them


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(5, track_running_stats=False), nn.GroupNorm(1, 5), nn.LayerNorm(5)])
@pytest.mark.parametrize("oracle", ["loop", "stacked"])
def test_normalisation_without_buffers_works(norm, oracle):
    model = nn.Sequential(nn.Linear(4, 5), norm, nn.Linear(5, 3)).double()
    shards = [(x.double(), y) for x, y in (table(6), table(6, seed=1))]
    problem = build(model, clients=shards)
    training = Training(batch_size=0, oracle=oracle)
    of_round = make_oracle(problem, training).for_round(Rounds(training, 2).at(0), 1)
    found = of_round(problem.z0, 0)
    for i, (x, y) in enumerate(shards):
        loss = cross_entropy(model(x), y)
        expected = nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))
        assert torch.allclose(found[i], expected, rtol=0, atol=1e-12)


def test_a_module_without_parameters_is_refused():
    with refused("The model has no parameters to train."):
        build(nn.Flatten())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_refused(dtype):
    name = str(dtype).removeprefix("torch.")
    with refused(f"all float64, and are {name}; call model.float() first, and compute in bfloat16 by precision ="):
        build(nn.Linear(4, 3, dtype=dtype))


def test_mixed_precision_is_refused():
    with refused("all float64, and are float32, float64; call model.float() first"):
        build(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3).double()))


def test_no_clients():
    with refused("The problem has no clients; give one (inputs, targets) pair or data set for each."):
        Problem.build(nn.Linear(4, 3), cross_entropy, [])


@pytest.mark.parametrize("empty", [table(0), [], TensorDataset(*table(0))], ids=["tensors", "list", "data set"])
def test_an_empty_client_is_refused(empty):
    with refused("The data of client 1 is empty; leave the client out or give it samples."):
        build(clients=[table(3), empty])


def test_inputs_and_targets_of_different_lengths():
    x, y = table(5)
    with refused("The data of client 1 has 5 inputs but 4 targets."):
        build(clients=[table(3), (x, y[:4])])
    with refused("The data of the test set has 5 inputs but 4 targets."):
        build(test=(x, y[:4]))


@pytest.mark.parametrize("data", [3, None, iter([])], ids=["number", "nothing", "iterator"])
def test_data_of_another_kind(data):
    with refused(
        "The data of client 0 must be an (inputs, targets) pair of tensors or a map-style data set, "
        f"not {type(data).__name__}."
    ):
        build(clients=[data])


def test_clients_whose_samples_do_not_fit_together():
    with refused(
        "The data of client 1 does not fit client 0's: a sample's input and target have the shapes "
        "((5,), ()), not ((4,), ())."
    ):
        build(clients=[table(3), table(3, features=5)])


@pytest.mark.parametrize(
    "rows",
    [[(torch.zeros(4), 0), (torch.zeros(5), 1), (torch.zeros(4), 2)], [("cat", 0)], "text"],
    ids=["unequal", "words", "text"],
)
def test_samples_that_are_no_table(rows):
    with refused("The samples of client 0 do not make a table of inputs and targets: "):
        build(clients=[rows])


def test_samples_that_are_dictionaries():
    with refused(
        "A sample of client 0 is a dictionary (x); give pairs of an input and a target, or a collate function"
    ):
        build(clients=[[{"x": 1}]])


def test_inputs_that_the_model_cannot_take():
    with refused(
        "The model or the loss cannot take a batch of client 0 (inputs (2, 5) torch.float32, "
        "targets (2,) torch.int64): "
    ) as info:
        build(clients=[table(3, features=5)])
    assert "shapes cannot be multiplied" in str(info.value)


def test_targets_that_the_loss_cannot_take():
    x, y = table(3)
    with refused("cannot take a batch of client 0"):
        build(clients=[(x, y.view(3, 1))])


def test_a_loss_that_is_not_a_mean():
    with refused("The loss must return one number, the mean over the batch; it returned shape (2,)."):
        build(loss=nn.CrossEntropyLoss(reduction="none"))
