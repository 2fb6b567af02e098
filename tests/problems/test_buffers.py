"""Frozen parameters and buffers: what is trained, what is kept, and what is refused."""

import re
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedcef
from fedcef import L1, FedAvg, FedCEF, Problem, TopK, run
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.problems.buffers import digest, untrained
from fedcef.runs.settings import Settings


def table(count, seed=0, features=4):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(count, features, generator=g), torch.randint(0, 3, (count,), generator=g)


SHARDS = [table(9), table(7, seed=1), table(8, seed=2)]


def build(model, clients=SHARDS, **options):
    return Problem.build(model, cross_entropy, clients, test=table(11, seed=3), **options)


def refused(sentence):
    return pytest.raises(ProblemError, match=re.escape(sentence))


def body_and_head():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    return model


def normalised():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    model.train()(table(40, seed=9)[0])  # statistics that are not those of a new layer
    return model


class Positions(nn.Module):
    """Adds a table that it computes once, and keeps a mask that is not saved."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(-1, 1, 4))
        self.register_buffer("mask", torch.tensor([1.0, 1.0, 0.0, 1.0]), persistent=False)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head((x + self.table) * self.mask)


class Counting(nn.Module):
    """A layer of one's own that changes a buffer in a training pass, or in every one."""

    def __init__(self, always=False):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.head, self.drop, self.always = nn.Linear(4, 3), nn.Dropout(0.5), always

    def forward(self, x):
        if self.training or self.always:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.head(self.drop(x - self.mean))


class LoRA(nn.Module):
    """A frozen linear layer and a product of two thin matrices beside it, as adapters are written."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) / 4)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


METHODS = [FedAvg(local_lr=0.1), FedCEF(local_lr=0.1, compressor=TopK(ratio=0.3))]


# frozen parameters


def test_only_what_is_not_frozen_is_in_the_vector():
    model = body_and_head()
    before = deepcopy(model.state_dict())
    problem = build(model)
    assert problem.layout.names == ("2.weight", "2.bias")
    assert torch.equal(problem.z0, torch.cat([model[2].weight.detach().flatten(), model[2].bias.detach()]))
    state = problem.state_dict(problem.z0 + 1)
    assert state.keys() == before.keys()
    assert torch.equal(state["0.weight"], before["0.weight"])
    assert torch.equal(state["2.bias"], before["2.bias"] + 1)
    state["0.weight"].zero_()  # a copy
    assert torch.equal(model[0].weight, before["0.weight"])


@pytest.mark.parametrize("method", METHODS, ids=["fedavg", "fedcef"])
@pytest.mark.parametrize("oracle", ["loop", "stacked"])
def test_training_with_a_frozen_body_is_training_the_head_on_its_features(method, oracle):
    model = body_and_head()
    with torch.no_grad():
        features = [(model[:2](x), y) for x, y in SHARDS]
        tested = table(11, seed=3)
        on_features = Problem.build(
            nn.Sequential(deepcopy(model[2])),
            cross_entropy,
            features,
            test=(model[:2](tested[0]), tested[1]),
            regularizer=L1(1e-3),
        )
    options = {"rounds": 6, "batch_size": 4, "oracle": oracle, "clients_per_round": 2}
    whole = run(build(model, regularizer=L1(1e-3)), method, **options)
    head = run(on_features, method, **options)
    for part in ("weight", "bias"):
        assert torch.allclose(whole.parameters[f"2.{part}"], head.parameters[f"0.{part}"], rtol=0, atol=1e-6)
        assert torch.equal(whole.parameters[f"0.{part}"], getattr(model[0], part))
    assert whole.bytes == head.bytes
    assert whole["objective"] == pytest.approx(head["objective"], abs=1e-6)
    assert torch.equal(whole.model[0].weight, model[0].weight)


def test_adapters_work_as_they_come():
    torch.manual_seed(1)
    model = nn.Sequential(LoRA(nn.Linear(4, 6)), nn.ReLU(), LoRA(nn.Linear(6, 3)))
    problem = build(model)
    assert problem.layout.names == ("0.lora_A", "0.lora_B", "2.lora_A", "2.lora_B")
    trained = run(problem, FedAvg(local_lr=0.3), rounds=30, batch_size=0)
    assert trained["train_loss"][-1] < trained["train_loss"][0] - 0.02
    assert torch.equal(trained.parameters["0.base.weight"], model[0].base.weight)
    assert not torch.equal(trained.parameters["0.lora_B"], model[0].lora_B)


@pytest.mark.extras
def test_adapters_of_peft():
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["0", "2"]))
    problem = build(adapted)
    assert all("lora_" in name for name in problem.layout.names)
    trained = run(problem, FedAvg(local_lr=0.1), rounds=3)
    adapted.load_state_dict(trained.parameters)


def test_frozen_and_tied():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    model[1].weight, model[3].weight = model[0].weight, model[2].weight
    model[0].weight.requires_grad_(False)
    problem = build(model)
    assert "0.weight" not in problem.layout.names
    assert "2.weight" in problem.layout.names
    x = problem.z0 + 1
    state = problem.state_dict(x)
    assert state.keys() == model.state_dict().keys()
    assert torch.equal(state["1.weight"], model[0].weight)
    assert torch.equal(state["3.weight"], state["2.weight"])
    inputs = table(5)[0]
    expected = problem.outputs(model, x, inputs)
    model.load_state_dict(state)
    assert torch.equal(model(inputs), expected)


def test_a_frozen_part_of_another_type_is_allowed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    half = nn.Linear(4, 3).bfloat16().requires_grad_(False)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.rest = half, model

        def forward(self, x):
            return self.rest(x) + self.body(x.bfloat16()).float()

    assert build(Both()).state_dict(build(Both()).z0)["body.weight"].dtype == torch.bfloat16


def test_a_model_that_is_frozen_altogether_is_refused():
    with refused("The model has no parameters to train: all of them are frozen (requires_grad=False); make some"):
        build(nn.Linear(4, 3).requires_grad_(False))


# constant buffers


@pytest.mark.parametrize("oracle", ["loop", "stacked"])
def test_constant_buffers_change_nothing(oracle):
    torch.manual_seed(3)
    model = Positions()
    head = nn.Sequential(deepcopy(model.head))
    shifted = [((x + model.table) * model.mask, y) for x, y in SHARDS]
    options = {"rounds": 5, "batch_size": 4, "oracle": oracle}
    with_buffers = run(build(model), METHODS[1], **options)
    without = run(build(head, clients=shifted), METHODS[1], **options)
    assert torch.equal(with_buffers.parameters["head.weight"], without.parameters["0.weight"])
    assert with_buffers.bytes == without.bytes
    assert with_buffers.parameters.keys() == {"table", "head.weight", "head.bias"}
    assert torch.equal(with_buffers.model.table, model.table)


# running statistics


def test_running_statistics_are_refused_with_the_choices():
    with refused("(1.running_mean, 1.running_var, 1.num_batches_tracked)") as info:
        build(normalised())
    for choice in (
        "buffers='frozen'",
        "buffers='local'",
        "nn.GroupNorm",
        "fedcef.group_norm",
        "track_running_stats=False",
    ):
        assert choice in str(info.value)
    with refused("(0.running_mean, 0.running_var, 0.num_batches_tracked, …)"):
        build(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3), nn.BatchNorm1d(3)))
    with refused("(mean)"):
        build(Counting())
    with refused("buffers is 'kept'; it must be one of 'constant', 'frozen', 'local', 'mean'."):
        build(normalised(), buffers="kept")


def test_statistics_are_refused_though_one_sample_cannot_be_normalised():
    with refused("(1.running_mean"):
        build(normalised(), clients=[table(1)])


@pytest.mark.parametrize("oracle", ["loop", "stacked"])
def test_frozen_statistics_are_those_of_evaluation(oracle):
    model = normalised()
    before = deepcopy(model.state_dict())
    problem = build(model, buffers="frozen")
    trained = run(problem, METHODS[0], rounds=5, batch_size=4, oracle=oracle)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(trained.parameters["1.running_var"], before["1.running_var"])
    assert not torch.equal(trained.parameters["1.weight"], before["1.weight"])

    class Plain(nn.Module):  # the same layer by hand
        def __init__(self, layer):
            super().__init__()
            self.weight, self.bias, self.layer = layer.weight, layer.bias, [layer]

        def forward(self, x):
            mean, var = self.layer[0].running_mean, self.layer[0].running_var
            return nn.functional.batch_norm(x, mean, var, self.weight, self.bias, False)

    by_hand = deepcopy(model)
    by_hand[1] = Plain(by_hand[1])
    same = run(build(by_hand), METHODS[0], rounds=5, batch_size=4, oracle=oracle)
    assert torch.equal(trained.parameters["1.weight"], same.parameters["1.weight"])
    assert torch.equal(trained.parameters["0.weight"], same.parameters["0.weight"])


def test_a_layer_of_ones_own_is_frozen_without_what_lies_within_it():
    problem = build(Counting(), buffers="frozen")
    copy = problem.statistics.train(deepcopy(problem.model))
    assert problem.statistics.layers == ("",)
    assert (copy.training, copy.drop.training) == (False, True)
    assert torch.equal(problem.model.mean, torch.zeros(4))
    with refused("changes buffers in evaluation mode, too (mean)"):
        build(Counting(always=True), buffers="frozen")


@pytest.mark.parametrize("oracle", ["loop", "stacked"])
def test_local_statistics_are_each_batch_s_own_and_those_of_the_test_inputs(oracle):
    model, (inputs, targets) = normalised(), table(11, seed=3)
    before = deepcopy(model.state_dict())
    problem = build(model, buffers="local")
    options = {"rounds": 5, "batch_size": 4, "oracle": oracle, "clients_per_round": 2}
    trained = run(problem, METHODS[1], **options)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    untracked = deepcopy(model)
    untracked[1] = nn.BatchNorm1d(6, track_running_stats=False)
    untracked[1].load_state_dict({name: before[f"1.{name}"] for name in ("weight", "bias")})
    same = run(build(untracked), METHODS[1], **options)
    assert all(torch.equal(same.parameters[name], trained.parameters[name]) for name in same.parameters)
    assert same.bytes == trained.bytes

    final = trained.model.eval().requires_grad_(False)
    z = final[0](inputs)
    assert torch.allclose(final[1].running_mean, z.mean(0), rtol=0, atol=1e-6)
    assert torch.allclose(final[1].running_var, z.var(0), rtol=0, atol=1e-6)
    assert trained["accuracy"][-1] == pytest.approx(float((final(inputs).argmax(1) == targets).double().mean()))
    loss = sum(float(cross_entropy(final(x), y)) for x, y in SHARDS) / 3
    assert trained["train_loss"][-1] == pytest.approx(loss, abs=1e-6)


def test_local_statistics_of_ones_own_inputs():
    model, mine, other = normalised(), table(20, seed=5)[0], table(30, seed=6)[0] + 1
    problem = build(model, buffers="local", calibration=other)
    with torch.no_grad():
        z = model[0](mine)
        assert torch.allclose(problem.state_dict(problem.z0, mine)["1.running_mean"], z.mean(0), rtol=0, atol=1e-6)
        by_default = problem.to("cpu", torch.float64).state_dict(problem.z0.double())["1.running_mean"]
        assert torch.allclose(by_default.float(), model[0](other).mean(0), rtol=0, atol=1e-6)
    without_test = Problem.build(model, cross_entropy, SHARDS, buffers="local")
    assert torch.equal(without_test.calibration, torch.cat([x for x, _ in SHARDS]))
    with refused("calibration must be a tensor with two or more inputs of shape (4,), torch.float32."):
        build(model, buffers="local", calibration=other[:, 1:])
    with refused("calibration is for a model with batch normalisation and buffers='local'; leave it out."):
        build(model, buffers="frozen", calibration=other)
    with refused("buffers='local' is for batch normalisation; the buffers of Counting can only be kept"):
        build(Counting(), buffers="local")


def test_local_statistics_are_nobody_else_s_business():
    model, other = normalised(), normalised()
    other[1].running_mean.add_(1)
    assert build(model, buffers="local").base_digest == build(other, buffers="local").base_digest == b""
    assert build(model, buffers="frozen").base_digest != build(other, buffers="frozen").base_digest


def test_a_layer_in_two_places_has_local_statistics_in_both():
    layer = nn.BatchNorm1d(4)
    model = nn.Sequential(layer, nn.Linear(4, 4), layer, nn.Linear(4, 3))
    problem = build(model, buffers="local")
    assert problem.base_digest == b""
    assert problem.state_dict(problem.z0).keys() == model.state_dict().keys()


def test_batches_of_one_have_no_statistics():
    with pytest.raises(ConfigError, match="take batch_size 2 or more"):
        run(build(normalised(), buffers="local"), METHODS[0], rounds=1, batch_size=1)


def test_from_settings():
    settings = Settings(
        data={"name": "digits"},
        model={"name": "resnet18", "norm": "batch", "width": 4, "buffers": "frozen"},
        num_clients=3,
    )
    assert len(settings.build_problem().statistics.layers) == 20
    with pytest.raises(ConfigError, match=re.escape("model.buffers")):
        settings.model_copy(update={"model": {**settings.model, "buffers": "kept"}}).build_problem()


# group normalisation


def test_group_in_place_of_batch_normalisation():
    model = nn.Sequential(nn.Conv2d(1, 64, 3), nn.BatchNorm2d(64), nn.Conv2d(64, 6, 3), nn.BatchNorm2d(6, affine=False))
    model.append(nn.Sequential(nn.BatchNorm2d(1, eps=0.5), model[1]))  # one in two places
    nn.init.uniform_(model[1].weight)
    model[1].bias.requires_grad_(False)
    grouped = fedcef.group_norm(model)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert [(m.num_groups, m.num_channels) for m in grouped.modules() if isinstance(m, nn.GroupNorm)] == [
        (32, 64),
        (3, 6),
        (1, 1),
    ]
    assert not any(isinstance(m, nn.BatchNorm2d) for m in grouped.modules())
    assert grouped[1] is grouped[4][1]
    assert torch.equal(grouped[1].weight, model[1].weight)
    assert (grouped[1].weight.requires_grad, grouped[1].bias.requires_grad) == (True, False)
    assert grouped[3].weight is None
    assert grouped[4][0].eps == 0.5
    assert [m.num_groups for m in fedcef.group_norm(model, 5).modules() if isinstance(m, nn.GroupNorm)] == [4, 3, 1]
    assert isinstance(fedcef.group_norm(nn.BatchNorm1d(8)), nn.GroupNorm)
    with refused("groups is 0; it must be 1 or more."):
        fedcef.group_norm(model, 0)
    build(fedcef.group_norm(normalised()))


# the digest


def test_the_digest_tells_bits_and_names_apart():
    assert build(nn.Linear(4, 3)).base_digest == b""
    one, other = body_and_head(), body_and_head()
    assert build(one).base_digest == build(other).base_digest != b""
    with torch.no_grad():
        other[2].weight.add_(1)
    assert build(one).base_digest == build(other).base_digest  # it is trained
    with torch.no_grad():
        other[0].bias[0] = torch.nextafter(other[0].bias[0], torch.tensor(9.0))
    assert build(one).base_digest != build(other).base_digest
    tensor = untrained(one)["0.bias"]
    assert digest({"a": tensor}) != digest({"b": tensor})
    assert digest({"a": tensor}) != digest({"a": tensor.view(2, 3)})
