"""What large models are computed by: one client at a time, parts of a batch, bfloat16 parameters, compiled blocks."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fedcef import Problem
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.loop import ClientLoop
from fedcef.oracles.oracle import make_oracle
from fedcef.oracles.stacked import Stacked
from fedcef.problems.models import GPT, LSTM
from fedcef.problems.text import from_texts, next_token_loss
from fedcef.simulation.evaluation import Evaluator

CONTEXT, CLIENTS = 8, 3
DATA = from_texts([letter * 200 for letter in ("a cat. ", "the dog, ", "0123 ")], context=CONTEXT)


def gpt(**options):
    torch.manual_seed(0)
    return GPT((CONTEXT,), 256, **{"layers": 2, "heads": 2, "width": 8, **options})


def build(model, data=DATA, dtype=torch.float64, loss=next_token_loss):
    return Problem.build(model, loss, data).to("cpu", dtype)


def gradients(problem, x=None, batch_size=5, **options):
    training = Training(batch_size=batch_size, **options)
    oracle = make_oracle(problem, training).for_round(Rounds(training, problem.num_clients).at(0), 2)
    return oracle(away(problem) if x is None else x, 1)


def away(problem):
    """A point that is not the model's own, so that parameters which were not lent would be noticed."""
    return problem.z0 + 0.05 * torch.sin(torch.arange(problem.dim, dtype=problem.z0.dtype))


# What is chosen


class Attending(nn.Module):
    """Attention by torch's own module."""

    def __init__(self):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(256, 8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return (self.attention(x, x, x, need_weights=False)[0] @ self.embedding.weight.T).transpose(1, 2)


@pytest.mark.parametrize("model", [gpt(), LSTM((CONTEXT,), 256, layers=1, width=8), Attending()])
def test_attention_and_recurrence_are_computed_client_by_client(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # vmap warns where it has no kernel
        assert isinstance(make_oracle(build(model), Training(batch_size=4)), ClientLoop)
        gradients(build(model))


def test_other_models_still_go_together():
    table = [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(2)]
    problem = Problem.build(nn.Linear(4, 3), nn.functional.cross_entropy, table)
    assert isinstance(make_oracle(problem, Training(batch_size=2)), Stacked)
    assert isinstance(make_oracle(problem, Training(batch_size=2, micro_batch=1)), ClientLoop)
    with pytest.raises(ConfigError, match="micro_batch is for clients that are computed one after the other"):
        make_oracle(problem, Training(batch_size=2, micro_batch=1, oracle="stacked"))
    with pytest.raises(ConfigError, match="compile is for clients"):
        make_oracle(problem, Training(batch_size=2, compile=True, oracle="layered"))


# Parts of a batch


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 4, 5, 7])
def test_parts_add_up_to_the_batch(micro_batch):
    problem = build(gpt())
    whole, parts = gradients(problem), gradients(problem, micro_batch=micro_batch)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    assert torch.equal(parts, whole) == (micro_batch >= 5)


def test_parts_of_all_samples_of_unequal_clients_with_clipping():
    """The norm is that of the whole gradient."""
    problem = build(gpt())
    whole, parts = (gradients(problem, batch_size=0, clip_norm=0.5, micro_batch=size) for size in (0, 64))
    assert not problem.equal_sizes
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(parts.norm(dim=1), torch.full((CLIENTS,), 0.5, dtype=torch.float64))


def test_batch_normalisation_sees_whole_batches():
    table = [(torch.randn(6, 4), torch.randint(0, 4, (6,))) for _ in range(2)]
    model = nn.Sequential(nn.BatchNorm1d(4))
    problem = Problem.build(model, nn.functional.cross_entropy, table, buffers="local", calibration=table[0][0])
    with pytest.raises(ConfigError, match="batch normalisation would see a part of the batch"):
        make_oracle(problem, Training(batch_size=4, micro_batch=2))
    with pytest.raises(ConfigError, match="models without running statistics"):
        make_oracle(problem, Training(batch_size=4, precision="bfloat16_weights"))


# Activations that are computed again


def saved_bytes(model, tokens):
    """What a pass keeps for the way back."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        model.train()(tokens)
    return sum(kept)


def test_recomputed_activations_give_the_same_gradients_and_keep_less():
    plain, again = gpt(layers=6), gpt(layers=6, checkpoint=True)
    assert torch.equal(gradients(build(again)), gradients(build(plain)))
    assert torch.equal(gradients(build(again), micro_batch=2), gradients(build(plain), micro_batch=2))
    tokens = DATA.samples(0, 4).inputs
    assert saved_bytes(again, tokens) < saved_bytes(plain, tokens) / 4


class Recomputing(nn.Module):
    """A model of somebody's own that calls torch's checkpoint, and knows nothing of lent parameters."""

    def __init__(self, again):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6)), nn.Linear(6, 3)
        self.again = again

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=False) if self.again else self.body(x))


def test_models_that_recompute_by_themselves_do_so_with_the_point_that_is_asked_for():
    torch.manual_seed(0)
    table = [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(2)]
    plain, again = Recomputing(False), Recomputing(True)
    again.load_state_dict(plain.state_dict())
    expected, found = (
        gradients(build(model, table, loss=nn.functional.cross_entropy), oracle="loop") for model in (plain, again)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    whole = [build(model, table, loss=nn.functional.cross_entropy) for model in (plain, again)]
    expected, found = (Evaluator(problem, 1.0).loss_and_gradient(away(problem))[1] for problem in whole)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    with pytest.raises(ProblemError, match="computes activations again on the way back"):
        gradients(whole[1], oracle="stacked")


def test_recomputed_activations_with_running_statistics():
    """A pass on the way back has the lent parameters, too, and moves no statistics on a second time."""

    class Normalised(Recomputing):
        def __init__(self, again):
            super().__init__(again)
            self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6))

    torch.manual_seed(0)
    table = [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(2)]
    plain, again = Normalised(False), Normalised(True)
    again.load_state_dict(plain.state_dict())
    found = []
    for model in (plain, again):
        problem = Problem.build(model, nn.functional.cross_entropy, table, buffers="mean").to("cpu", torch.float64)
        training = Training(batch_size=5, oracle="loop")
        oracle = make_oracle(problem, training).for_round(Rounds(training, 2).at(0), 2)
        found.append((oracle(away(problem), 0), oracle(away(problem), 1), oracle.statistics))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


# Parameters in bfloat16


def test_bfloat16_parameters_are_the_rounded_vector():
    """Gradients are those of the model in bfloat16 at the rounded point, and come back in float32."""
    problem = build(gpt(), dtype=torch.float32)
    found = gradients(problem, precision="bfloat16_weights")
    assert found.dtype == torch.float32
    rounded = gradients(problem, x=away(problem).to(torch.bfloat16).float(), precision="bfloat16_weights")
    assert torch.equal(found, rounded)
    assert torch.equal(found, found.to(torch.bfloat16).float())
    exact = gradients(problem)
    assert float((found - exact).norm() / exact.norm()) < 0.05
    assert not torch.equal(found, gradients(problem, precision="bfloat16"))
    assert all(parameter.dtype == torch.float32 for parameter in problem.model.parameters())


def test_frozen_parameters_are_rounded_too_and_buffers_are_not():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.head = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3)
            self.register_buffer("table", torch.linspace(0, 1, 4))

        def forward(self, x):
            assert self.base.weight.dtype == x.dtype
            assert self.table.dtype == torch.float32
            return self.head(self.base(x) * self.table.to(x.dtype))

    table = [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(2)]
    problem = Problem.build(Frozen(), nn.functional.cross_entropy, table)
    for oracle in ("loop", "stacked"):
        g = gradients(problem, precision="bfloat16_weights", oracle=oracle)
        assert g.dtype == torch.float32
        assert float((g - gradients(problem)).norm() / g.norm()) < 0.05


# Compiled


@pytest.mark.filterwarnings("default")  # dynamo looks at .grad of what it is given, and hushes torch about it
def test_compiled_blocks(monkeypatch):
    """With dynamo and without the compiler behind it: lent parameters are the blocks' own there, too."""
    compiled, real = [], nn.Module.compile

    def compile_(module, **options):
        compiled.append(type(module).__name__)
        real(module, backend="eager", **options)

    monkeypatch.setattr(nn.Module, "compile", compile_)
    problem = build(gpt(width=4, heads=1))
    training = Training(batch_size=5, compile=True)
    oracle = make_oracle(problem, training).for_round(Rounds(training, CLIENTS).at(0), 2)
    for x in (away(problem), -away(problem)):  # nothing of the first point is compiled in
        torch.testing.assert_close(oracle(x, 1), gradients(problem, x), rtol=0, atol=1e-12)
    assert compiled == ["Block", "Block"]
