"""Gradient oracles: two ways to the same gradients, on samples that depend on nothing but the key."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.round import Rounds
from fedcef.core.threads import single_thread
from fedcef.core.training import Training
from fedcef.oracles.gradient_oracle import clip
from fedcef.oracles.loop import ClientLoop
from fedcef.oracles.oracle import make_oracle
from fedcef.oracles.stacked import Stacked
from fedcef.problems.client_data import PooledData
from fedcef.problems.lasso import lasso
from fedcef.problems.models import MODELS
from fedcef.problems.problem import Problem
from fedcef.regularizers import Zero


def classification(model, shape, sizes, dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    clients = [(torch.randn(n, *shape, generator=g).to(dtype), torch.randint(0, 3, (n,), generator=g)) for n in sizes]
    return Problem.build(model.to(dtype), cross_entropy, clients)


def small(name="softmax", sizes=(9, 4, 30), dtype=torch.float64):
    torch.manual_seed(0)
    return classification(MODELS[name]((2, 3), 3), (2, 3), sizes, dtype)


def dropout(sizes=(9, 4, 30)):
    torch.manual_seed(0)
    return classification(nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3)), (6,), sizes)


def points(problem, seed=3):
    g = torch.Generator().manual_seed(seed)
    z0 = problem.z0
    return z0 + 0.1 * torch.randn(problem.num_clients, problem.dim, generator=g).to(z0.dtype)


def training(batch_size, clip_norm=None, oracle="auto"):
    return Training(seed=7, batch_size=batch_size, clip_norm=clip_norm, oracle=oracle)


def round_of(problem, number=0, clients=None):
    return Rounds(Training(seed=7), problem.num_clients).at(number, clients)


def of_round(oracle, steps=3, number=0, clients=None):
    return oracle.for_round(round_of(oracle.problem, number, clients), steps)


def rows_of(problem, size, steps, number=0, clients=None):
    """Rows of the table of samples."""
    round_ = round_of(problem, number, clients)
    rows = problem.data.draw(round_.clients, round_.batches, steps, size)
    return problem.starts[round_.clients].view(-1, 1, 1) + rows


def plain_gradient(problem, x, inputs, targets):
    model = deepcopy(problem.model).train()
    nn.utils.vector_to_parameters(x.clone(), model.parameters())
    loss = problem.loss(model(inputs), targets)
    return nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


# Which samples


def test_batches_are_each_client_s_own_samples():
    problem = small()
    rows = rows_of(problem, 50, steps=4)
    assert rows.shape == (3, 4, 50)
    for client, start, size in zip(rows, problem.starts.tolist(), problem.sizes.tolist(), strict=True):
        assert client.unique().tolist() == list(range(start, start + size))  # 200 draws: all of them, no others


def test_batches_repeat_for_the_same_key_and_differ_otherwise():
    problem = small(sizes=(1000, 1000, 1000))
    rows = rows_of(problem, 8, steps=4)
    assert torch.equal(rows, rows_of(problem, 8, steps=4))
    within = rows - problem.starts.view(-1, 1, 1)
    assert len({tuple(batch) for client in within.tolist() for batch in client}) == 12
    another = rows_of(problem, 8, steps=4, number=1)
    assert not (rows == another).all(-1).any()


def test_a_client_s_batches_do_not_depend_on_the_cohort():
    problem = small(sizes=(50, 60, 70))
    rows = rows_of(problem, 8, steps=4)
    some = torch.tensor([2, 0])
    assert torch.equal(rows_of(problem, 8, steps=4, clients=some), rows[some])


def test_fewer_steps_are_the_first_of_more():
    problem = small()
    rows = rows_of(problem, 8, steps=6)
    assert torch.equal(rows_of(problem, 8, steps=2), rows[:, :2])


# The gradients


@pytest.mark.parametrize("kind", [ClientLoop, Stacked])
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_gradients_are_autograd_s_on_the_batches(name, kind):
    problem = small(name)
    rows = rows_of(problem, 5, steps=3)
    oracle, x = of_round(kind(problem, training(5))), points(problem)
    for k in range(3):
        found = oracle(x, k)
        for i in range(3):
            inputs, targets = problem.train.inputs[rows[i, k]], problem.train.targets[rows[i, k]]
            expected = plain_gradient(problem, x[i], inputs, targets)
            assert torch.allclose(found[i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip_norm", [None, 0.3])
@pytest.mark.parametrize("batch_size", [0, 1, 6])
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_stacked_and_loop_agree(name, batch_size, clip_norm):
    problem = small(name, sizes=(8, 8, 8))
    x = points(problem)
    stacked = of_round(Stacked(problem, training(batch_size, clip_norm)))
    loop = of_round(ClientLoop(problem, training(batch_size, clip_norm)))
    for k in range(3):
        assert torch.allclose(stacked(x, k), loop(x, k), rtol=0, atol=1e-12)


def test_stacked_and_loop_agree_on_the_lasso():
    problem = lasso(Zero(), num_clients=4, samples=10, dim=12, support=3, dtype=torch.float64)
    x = points(problem)
    stacked, loop = (of_round(kind(problem, training(3)))(x, 1) for kind in (Stacked, ClientLoop))
    assert torch.allclose(stacked, loop, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["loop", "stacked"])
def test_exact_gradients(kind):
    problem = small("mlp", sizes=(7, 7, 7))
    x = points(problem)
    oracle = of_round(make_oracle(problem, training(0, oracle=kind)))
    for k in range(2):
        for i, found in enumerate(oracle(x, k)):
            batch = problem.client_samples(i)
            expected = plain_gradient(problem, x[i], batch.inputs, batch.targets)
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_exact_gradients_of_clients_of_different_size():
    problem = small("softmax", sizes=(1, 4, 30))
    x = points(problem)
    oracle = make_oracle(problem, training(0, oracle="auto"))
    assert isinstance(oracle, ClientLoop)
    for i, found in enumerate(of_round(oracle)(x, 0)):
        batch = problem.client_samples(i)
        expected = plain_gradient(problem, x[i], batch.inputs, batch.targets)
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [ClientLoop, Stacked])
@pytest.mark.parametrize("batch_size", [0, 5])
def test_one_point_for_all_clients(kind, batch_size):
    problem = small(sizes=(6, 6, 6))
    oracle = of_round(kind(problem, training(batch_size)))
    x = points(problem)[0]
    found = oracle(x, 1)
    assert found.shape == (3, problem.dim)
    assert torch.equal(found, oracle(x.expand(3, -1).contiguous(), 1))
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("kind", [ClientLoop, Stacked])
def test_some_of_the_clients(kind):
    problem = small(sizes=(6, 6, 6))
    oracle = kind(problem, training(4))
    x = points(problem)
    full = of_round(oracle)(x, 2)
    some = torch.tensor([0, 2])
    assert torch.allclose(of_round(oracle, clients=some)(x[some], 2), full[some], rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [ClientLoop, Stacked])
def test_nothing_is_changed_and_no_graph_is_kept(kind):
    problem = small("mlp", sizes=(6, 6, 6))
    x, model = points(problem), deepcopy(problem.model.state_dict())
    before = x.clone()
    with torch.no_grad():  # as in the engine
        found = of_round(kind(problem, training(4)))(x, 0)
    assert not found.requires_grad
    assert torch.equal(x, before)
    assert all(torch.equal(tensor, model[name]) for name, tensor in problem.model.state_dict().items())


def test_the_number_of_workers_does_not_change_a_bit():
    torch.manual_seed(0)
    problem = classification(MODELS["mnist_cnn"]((1, 28, 28), 3), (1, 28, 28), (5, 8, 6), torch.float32)
    x = points(problem) * 0.9
    one, two = (of_round(ClientLoop(problem, training(4), workers=n), steps=2) for n in (1, 2))
    for k in range(2):
        assert torch.equal(one(x, k), two(x, k))


def test_threads_are_given_back():
    before = torch.get_num_threads()
    problem = small()
    of_round(ClientLoop(problem, training(4), workers=1))(problem.z0, 0)
    assert torch.get_num_threads() == before


def test_threads_are_given_back_after_an_error():
    before = torch.get_num_threads()

    def fail():
        with single_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before


# Clipping


def test_clipping():
    g = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-30.0, 40.0]], dtype=torch.float64)
    clipped = clip(g, 1.0)
    assert torch.allclose(clipped[0], torch.tensor([0.6, 0.8], dtype=torch.float64))
    assert torch.equal(clipped[1:3], g[1:3])
    assert torch.allclose(clipped[3], torch.tensor([-0.6, 0.8], dtype=torch.float64))


@pytest.mark.parametrize("kind", [ClientLoop, Stacked])
def test_every_client_s_gradient_is_clipped_by_itself(kind):
    problem = small(sizes=(6, 6, 6))
    x = points(problem)
    full = of_round(kind(problem, training(4)))(x, 0)
    norms = full.norm(dim=-1)
    limit = float(norms.sort().values[:2].mean())  # between two of them
    clipped = of_round(kind(problem, training(4, limit)))(x, 0)
    assert bool((clipped.norm(dim=-1) <= limit * (1 + 1e-12)).all())
    below = norms <= limit
    assert 0 < int(below.sum()) < 3
    assert torch.equal(clipped[below], full[below])
    assert torch.allclose(clipped / clipped.norm(dim=-1, keepdim=True), full / norms.unsqueeze(-1))


# The choice


def test_auto_goes_by_the_model():
    convolution = classification(MODELS["mnist_cnn"]((1, 8, 8), 3), (1, 8, 8), (4, 4))
    assert isinstance(make_oracle(small("softmax"), training(4, oracle="auto")), Stacked)
    assert isinstance(make_oracle(small("mlp"), training(4, oracle="auto")), Stacked)
    assert isinstance(make_oracle(convolution, training(4, oracle="auto")), ClientLoop)
    assert isinstance(make_oracle(dropout(), training(4, oracle="auto")), ClientLoop)
    assert isinstance(make_oracle(small(), training(0, oracle="auto")), ClientLoop)
    assert isinstance(make_oracle(small(sizes=(5, 5)), training(0, oracle="auto")), Stacked)


def test_the_choice_can_be_made():
    assert isinstance(make_oracle(small(), training(4, oracle="loop")), ClientLoop)
    assert isinstance(make_oracle(small(), training(4, oracle="stacked")), Stacked)


def test_stacked_needs_clients_of_equal_size_for_exact_gradients():
    with pytest.raises(ConfigError, match=r"needs clients of equal size; use oracle = 'loop'\.$"):
        make_oracle(small(), training(0, oracle="stacked"))


def test_one_client_of_a_problem_computes_in_the_way_of_the_whole():
    """A deployed client must not go by its own size: it would take another path than the simulator, with other bits."""
    whole, equal = small(), small(sizes=(5, 5))
    for problem, kind in ((whole, ClientLoop), (equal, Stacked)):
        samples = problem.client_samples(1)
        alone = replace(problem, data=PooledData.of([samples]))
        assert type(make_oracle(problem, training(0))) is type(make_oracle(alone, training(0))) is kind


@pytest.mark.parametrize("kind", ["loop", "stacked"])
@pytest.mark.parametrize("batch_size", [0, 4])
def test_a_client_may_be_another_row_of_its_problem(kind, batch_size):
    problem = small("mlp", sizes=(6, 6, 6))
    options, x = training(batch_size, oracle=kind), points(problem)[2:]
    samples, who = problem.client_samples(2), torch.tensor([2])
    alone = replace(problem, data=PooledData.of([samples]))
    expected = of_round(make_oracle(problem, options), clients=who)(x, 1)
    round_ = round_of(problem, clients=who)
    found = make_oracle(alone, options).for_round(round_, 3, rows=torch.zeros(1, dtype=torch.int64))(x, 1)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("reads", [lambda o: o.sum().item(), lambda o: 1.0 if o.sum() > 0 else 2.0], ids=["item", "if"])
def test_a_loss_that_reads_numbers_is_told_to_take_the_loop(reads):
    problem = replace(small(), loss=lambda o, t: cross_entropy(o, t) + reads(o.detach()))
    with pytest.raises(ProblemError, match=r"reads a number from a tensor .* take oracle = 'loop'"):
        of_round(make_oracle(problem, training(4)))(problem.z0, 0)
    assert of_round(make_oracle(problem, training(4, oracle="loop")))(problem.z0, 0).isfinite().all()
