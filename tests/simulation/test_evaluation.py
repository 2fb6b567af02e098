"""What is measured, against direct computation."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef.problems.lasso import lasso
from fedcef.problems.problem import Problem
from fedcef.regularizers import L1, OnParameters, Zero
from fedcef.simulation import evaluation
from fedcef.simulation.evaluation import Evaluator, support_f1

STEP = 0.3


def classification(sizes=(5, 12, 3), test=40, model=None, regularizer=None):
    g = torch.Generator().manual_seed(0)

    def table(n):
        return torch.randn(n, 4, generator=g, dtype=torch.float64), torch.randint(0, 3, (n,), generator=g)

    torch.manual_seed(0)
    return Problem.build(
        (model or nn.Linear(4, 3)).double(),
        cross_entropy,
        clients=[table(n) for n in sizes],
        test=table(test) if test else None,
        regularizer=regularizer,
    )


def point(problem, seed=1):
    return torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def smooth_part(problem, x, counts=None):
    """f and its gradient, client by client."""
    x = x.clone().requires_grad_()
    losses = []
    for i in range(problem.num_clients):
        batch = problem.client_samples(i, None if counts is None else counts[i])
        losses.append(problem.loss(problem.outputs(problem.model, x, batch.inputs), batch.targets))
    f = torch.stack(losses).mean()
    return float(f.detach()), torch.autograd.grad(f, x)[0]


@pytest.mark.parametrize("h", [Zero(), L1(0.2), OnParameters(L1(0.2), torch.arange(12))], ids=["zero", "l1", "some"])
def test_measures_of_a_classification_problem(h):
    problem = classification(regularizer=h)
    x = point(problem)
    x[2:5] = 0
    x[7] = 5e-5
    measures = Evaluator(problem, STEP)(x)
    f, gradient = smooth_part(problem, x)
    mapping = (x - h.prox(x - STEP * gradient, STEP)) / STEP
    right = (problem.test.inputs @ x[:12].view(3, 4).T + x[12:]).argmax(-1) == problem.test.targets
    assert measures == pytest.approx(
        {
            "accuracy": int(right.sum()) / 40,
            "train_loss": f,
            "objective": f + float(h.value(x)),
            "stationarity": float(mapping.norm()) ** 2,
            "density": 12 / 15,
            "density_1e-4": 11 / 15,
        },
        rel=1e-12,
    )
    assert all(type(value) is float for value in measures.values())


def test_clients_count_alike_whatever_their_size():
    problem = classification(sizes=(1, 50))
    x = point(problem)
    f, _ = smooth_part(problem, x)
    pooled = float(problem.loss(problem.outputs(problem.model, x, problem.train.inputs), problem.train.targets))
    assert Evaluator(problem, STEP)(x)["train_loss"] == pytest.approx(f, rel=1e-12)
    assert abs(f - pooled) > 1e-3


def test_stationarity_is_the_squared_gradient_without_a_regularizer():
    problem = classification()
    x = point(problem)
    _, gradient = smooth_part(problem, x)
    assert Evaluator(problem, STEP)(x)["stationarity"] == pytest.approx(float(gradient.square().sum()), rel=1e-10)


def test_stationarity_vanishes_at_the_solution():
    """One client, orthonormal inputs: the solution of the lasso is a soft threshold."""
    q, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    inputs, targets = q * 6**0.5, torch.arange(6.0, dtype=torch.float64)
    problem = replace(lasso(L1(0.7), num_clients=1, samples=6, dim=6, support=2, dtype=torch.float64), truth=None)
    problem = Problem.build(problem.model, problem.loss, [(inputs, targets)], regularizer=L1(0.7))
    solution = L1(0.7).prox(inputs.T @ targets / 6, 1.0)
    assert Evaluator(problem, STEP)(solution)["stationarity"] < 1e-24
    assert Evaluator(problem, STEP)(solution + 0.1)["stationarity"] > 1e-3


def test_measures_of_a_problem_with_a_known_truth():
    problem = lasso(L1(0.1), num_clients=3, samples=8, dim=10, support=4, dtype=torch.float64)
    x = torch.tensor([1, 0.5, 0, 0.009, 0, 0, 0, -0.02, 0, 0.005], dtype=torch.float64)
    measures = Evaluator(problem, STEP)(x)
    f, _ = smooth_part(problem, x)
    assert "accuracy" not in measures
    assert measures["train_loss"] == pytest.approx(f, rel=1e-12)
    assert measures["f1"] == pytest.approx(2 * 2 / (3 + 4))
    assert measures["l2_error"] == pytest.approx(float((x - problem.truth).square().sum().sqrt()))
    assert measures["density"] == 0.5


def test_support_f1():
    truth = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert support_f1(truth, truth) == 1
    assert support_f1(1 - truth, truth) == 0
    assert support_f1(torch.zeros(4), truth) == 0
    assert support_f1(torch.ones(4), truth) == pytest.approx(2 / 3)
    assert support_f1(torch.tensor([-0.5, 0.01, 0.0, 0.0]), truth) == pytest.approx(2 / 3)  # the threshold is not found
    assert support_f1(torch.tensor([-0.5, 0.01, 0.0, 0.0]), truth, threshold=0.001) == 1


def test_there_is_no_accuracy_without_a_test_set():
    assert "accuracy" not in Evaluator(problem := classification(test=0), STEP)(problem.z0)


@pytest.mark.parametrize(
    ("train_samples", "counts"),
    [(0, [5, 12, 3]), (20, [5, 12, 3]), (1000, [5, 12, 3]), (10, [2, 6, 2]), (4, [1, 2, 1]), (1, [1, 1, 1])],
)
def test_some_of_the_training_samples(train_samples, counts):
    """In proportion to the clients' sizes, and at least one of each."""
    problem = classification()
    x = point(problem)
    f, gradient = smooth_part(problem, x, counts)
    measures = Evaluator(problem, STEP, train_samples)(x)
    assert measures["train_loss"] == pytest.approx(f, rel=1e-12)
    assert measures["stationarity"] == pytest.approx(float(gradient.square().sum()), rel=1e-10)
    assert measures["accuracy"] == Evaluator(problem, STEP)(x)["accuracy"]


def test_more_samples_than_fit_in_one_pass():
    problem = classification(sizes=(2300, 999, 1000), test=2047)
    x = point(problem)
    f, gradient = smooth_part(problem, x)
    measures = Evaluator(problem, STEP)(x)
    assert measures["train_loss"] == pytest.approx(f, rel=1e-12)
    assert measures["stationarity"] == pytest.approx(float(gradient.square().sum()), rel=1e-10)
    right = problem.outputs(problem.model, x, problem.test.inputs).argmax(-1) == problem.test.targets
    assert measures["accuracy"] == int(right.sum()) / 2047


def test_dropout_is_off_and_nothing_is_changed():
    problem = classification(model=nn.Sequential(nn.Linear(4, 20), nn.Dropout(0.5), nn.Linear(20, 3)))
    x = point(problem)
    before, state = x.clone(), torch.random.get_rng_state()
    evaluate = Evaluator(problem, STEP)
    assert evaluate(x) == evaluate(x)
    assert torch.equal(x, before)
    assert not x.requires_grad
    assert problem.model.training
    assert torch.equal(torch.random.get_rng_state(), state)


# Many clients


def uneven(count=130):
    return (*(1 + i * 7 % 13 for i in range(count)), 4700)


@pytest.mark.parametrize("train_samples", [0, 300])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("convolutions", [False, True])
def test_many_clients_are_evaluated_together(weighting, train_samples, convolutions, monkeypatch):
    model = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 4), nn.Flatten()) if convolutions else None
    problem = classification(sizes=uneven(), test=0, model=model)
    x = point(problem)
    together = Evaluator(problem, STEP, train_samples, weighting)
    calls, outputs = [], problem.outputs
    object.__setattr__(problem, "outputs", lambda *given: calls.append(1) or outputs(*given))
    found = together(x)
    assert len(calls) < 50
    monkeypatch.setattr(evaluation, "_ONE_BY_ONE", 1000)
    assert found == pytest.approx(Evaluator(problem, STEP, train_samples, weighting)(x), rel=1e-12)
    assert len(calls) > 130
    assert float(together.loss(x)) == pytest.approx(found["train_loss"], rel=1e-12)


def test_a_loss_that_reads_numbers_is_evaluated_client_by_client():
    problem = classification(sizes=(3,) * 120, test=0)

    def loss(outputs, targets):
        return cross_entropy(outputs, targets) * (1.0 if float(outputs.detach().sum()) > -1e9 else 2.0)

    x = point(problem)
    assert Evaluator(replace(problem, loss=loss), STEP)(x) == pytest.approx(Evaluator(problem, STEP)(x), rel=1e-12)


def test_a_hundred_clients_keep_the_bits_that_they_had():
    """One client after the other, in pieces of a thousand: records of earlier runs were made so."""
    problem = classification(sizes=(1700,) + (3,) * 99, test=0)
    x = point(problem).requires_grad_()
    loss, gradient = x.new_zeros(()), torch.zeros_like(x)
    for i in range(100):
        batch = problem.client_samples(i)
        for inputs, targets in zip(batch.inputs.split(1000), batch.targets.split(1000), strict=True):
            part = 1 / 100 * len(inputs) / len(batch) * problem.loss(problem.outputs(problem.model, x, inputs), targets)
            gradient += torch.autograd.grad(part, x)[0]
            loss = loss + part.detach()
    found = Evaluator(problem, STEP).loss_and_gradient(x)
    assert torch.equal(found[0], loss)
    assert torch.equal(found[1], gradient)
