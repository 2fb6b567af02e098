"""All clients' gradients at once against the loop over clients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedcef import kernels
from fedcef.core import rng
from fedcef.core.layout import Layout
from fedcef.core.masks import Chance
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.gradient_oracle import clip
from fedcef.oracles.loop import ClientLoop
from fedcef.problems.models import MLP, Cifar10CNN, MnistCNN, PaperCNN
from fedcef.problems.problem import Problem

if not kernels.available():
    pytest.skip("needs Triton, and CUDA or TRITON_INTERPRET=1", allow_module_level=True)

from fedcef.kernels.cnn import BatchedNetwork, loss_gradients
from fedcef.kernels.dropout import Drop
from fedcef.kernels.order import _cast as cast_kernel
from fedcef.kernels.update import corrected_step

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLIENTS, BATCH = 3, 2


def models() -> list[tuple[nn.Module, tuple[int, int, int]]]:
    torch.manual_seed(0)
    return [
        (PaperCNN((3, 8, 8), 10, blocks=((16, 16), (32,)), hidden=32), (3, 8, 8)),
        (PaperCNN((1, 6, 10), 5, blocks=((16,), (16,)), hidden=16), (1, 6, 10)),
        (nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30, 7)), (2, 5, 6)),
    ]


def by_loop(problem: Problem, x: Tensor) -> Tensor:
    """The clients' gradients on all their samples, one after the other."""
    round_ = Rounds(Training(), problem.num_clients).at(0)
    return ClientLoop(problem, Training(batch_size=0), workers=1).gradients(x, round_.clients, None, round_, 0)


def near(g: Tensor, expected: Tensor) -> float:
    return float(torch.linalg.vector_norm(g.double() - expected) / torch.linalg.vector_norm(expected))


@pytest.mark.parametrize(("case", "clip_norm"), [(0, None), (1, 0.5), (2, None), (2, 0.5)])
def test_gradients_are_those_of_the_loop_over_clients(case: int, clip_norm: float | None) -> None:
    model, shape = models()[case]
    inputs = torch.randn(CLIENTS, BATCH, *shape)
    targets = torch.randint(0, 5, (CLIENTS, BATCH))
    problem = Problem.build(model, F.cross_entropy, list(zip(inputs, targets, strict=True)))
    x = problem.z0 + 0.1 * torch.randn(CLIENTS, problem.layout.size)
    expected = by_loop(problem, x)
    if clip_norm is not None:
        expected = clip(expected, clip_norm)
    network = BatchedNetwork.of(model, problem.layout, shape)
    assert network is not None
    x, inputs, targets, expected = (t.to(DEVICE) for t in (x, inputs, targets, expected.double()))
    g = network.gradients(x, inputs, targets, F.cross_entropy, torch.float32, clip_norm)
    assert near(g, expected) < 1e-5
    if DEVICE == "cuda":
        again = network.gradients(x, inputs, targets, F.cross_entropy, torch.float32, clip_norm)
        assert torch.equal(g, again)
        g = network.gradients(x, inputs, targets, F.cross_entropy, torch.bfloat16, clip_norm)
        assert near(g, expected) < 0.1  # in a net this small, rounding moves maxima


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_bfloat16_is_as_near_as_autocast_comes() -> None:
    """On the paper's network: the error against float32 is that of bfloat16, not of the kernels."""
    torch.manual_seed(0)
    data = [(torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))) for _ in range(CLIENTS)]
    problem = Problem.build(Cifar10CNN((3, 32, 32), 10), F.cross_entropy, data).to("cuda")
    x, round_ = problem.z0.repeat(CLIENTS, 1), Rounds(Training(), CLIENTS, "cuda").at(0)
    loops = [ClientLoop(problem, Training(batch_size=64, precision=p)) for p in ("float32", "bfloat16")]  # type: ignore[arg-type]
    batch = loops[0].batches(round_, round_.clients, 1)(0)
    exact, autocast = (loop.gradients(x, round_.clients, batch, round_, 0).double() for loop in loops)
    network = BatchedNetwork.of(problem.model, problem.layout, (3, 32, 32))
    assert network is not None
    assert batch is not None
    ours = network.gradients(x, batch.inputs, batch.targets, F.cross_entropy, torch.bfloat16)
    assert near(ours, exact) < 1.3 * near(autocast, exact)


def _as_vmap_cannot(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs, F.one_hot(targets, 4).float())


@pytest.mark.parametrize(
    "loss",
    [
        F.cross_entropy,
        nn.CrossEntropyLoss(weight=torch.tensor([5.0, 1.0, 0.5, 0.1])),
        nn.CrossEntropyLoss(ignore_index=2),
        _as_vmap_cannot,
    ],
)
def test_every_client_has_the_gradient_of_its_own_loss(loss: nn.Module) -> None:
    """With classes that weigh differently, or targets that do not count, a mean over all samples is another loss."""
    outputs, targets = torch.randn(3, 5, 4), torch.tensor([[0, 0, 0, 0, 2], [3, 3, 3, 1, 1], [2, 2, 2, 2, 1]])
    expected = []
    for own, wanted in zip(outputs, targets, strict=True):
        leaf = own.clone().requires_grad_()
        expected.append(torch.autograd.grad(loss(leaf, wanted), leaf)[0])
    torch.testing.assert_close(loss_gradients(loss, outputs, targets), torch.stack(expected))


def test_a_network_with_weighted_classes_has_the_gradients_of_the_loop() -> None:
    model, shape = models()[2]
    loss = nn.CrossEntropyLoss(weight=torch.linspace(0.1, 3, 7), ignore_index=1)
    inputs, targets = torch.randn(2, 3, *shape), torch.tensor([[0, 0, 1], [6, 5, 4]])
    problem = Problem.build(model, loss, list(zip(inputs, targets, strict=True)))
    x = problem.z0.repeat(2, 1)
    expected = by_loop(problem, x)
    network = BatchedNetwork.of(model, problem.layout, shape)
    assert network is not None
    x, inputs, targets = (t.to(DEVICE) for t in (x, inputs, targets))
    g = network.gradients(x, inputs, targets, loss.to(DEVICE), torch.float32)
    assert near(g, expected.to(DEVICE).double()) < 1e-5


def test_kernels_are_launched_on_the_device_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the current one, which is another where a run computes on cuda:1."""
    guarded, inside = torch.cuda.device_of, []

    class Guard(guarded):  # type: ignore[misc, valid-type]
        def __enter__(self) -> None:
            inside.append(True)
            super().__enter__()

        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            inside.pop()

    launches = []
    kind = type(cast_kernel)
    launch = kind.__getitem__
    monkeypatch.setattr(kind, "__getitem__", lambda self, grid: launches.append(bool(inside)) or launch(self, grid))
    monkeypatch.setattr(torch.cuda, "device_of", Guard)
    model, shape = models()[1]
    network = BatchedNetwork.of(model, layout(model), shape)
    assert network is not None
    x = torch.randn(2, network.size, device=DEVICE)
    inputs, targets = torch.randn(2, 2, *shape, device=DEVICE), torch.zeros(2, 2, dtype=torch.int64, device=DEVICE)
    network.gradients(x, inputs, targets, F.cross_entropy, torch.float32)
    corrected_step(x, x.clone(), x.clone(), x[0].clone(), 0.1, 0.0)
    assert len(launches) > 10
    assert all(launches)


class OwnDropout(nn.Dropout):
    pass


class Called(nn.Module):
    """ReLU and flattening as function calls."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding="same")
        self.linear = nn.Linear(16 * 12, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.flatten(F.relu(self.conv(x)), 1))  # type: ignore[no-any-return]


def dropping() -> list[tuple[nn.Module, tuple[int, int, int]]]:
    torch.manual_seed(0)
    conv, pool, relu, flat = nn.Conv2d, nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()
    return [
        # pfl-research's network for CIFAR-10, smaller: no padding, a pool after its ReLU, both kinds of places
        (
            nn.Sequential(
                *(conv(3, 16, 3), relu, conv(16, 32, 3), relu, pool, nn.Dropout(0.25), flat),
                *(nn.Linear(32 * 4, 16), relu, nn.Dropout(0.5), nn.Linear(16, 5)),
            ),
            (3, 8, 9),
        ),
        # whole channels, entries of an image between convolutions, and a layer that is too thin for the kernels
        (
            nn.Sequential(
                *(conv(2, 16, 3, padding=1), pool, relu, nn.Dropout2d(0.3), conv(16, 16, 3), relu, nn.Dropout(0.2)),
                *(flat, nn.Linear(16 * 2, 9), relu, nn.Dropout(0.4), nn.Linear(9, 5)),
            ),
            (2, 6, 8),
        ),
        # behind the flattening
        (nn.Sequential(conv(3, 16, 3, padding="valid"), relu, flat, nn.Dropout(0.5), nn.Linear(16 * 12, 5)), (3, 5, 6)),
        (Called(), (3, 3, 4)),
    ]


@pytest.mark.parametrize(("case", "clip_norm"), [(0, None), (1, None), (2, 0.5), (3, None)])
def test_gradients_with_dropout_are_those_of_the_loop_over_clients(case: int, clip_norm: float | None) -> None:
    model, shape = dropping()[case]
    torch.manual_seed(1)
    inputs, targets = torch.randn(CLIENTS, BATCH, *shape), torch.randint(0, 2, (CLIENTS, BATCH))
    problem = Problem.build(model, F.cross_entropy, list(zip(inputs, targets, strict=True)))
    x = problem.z0 + 0.1 * torch.randn(CLIENTS, problem.layout.size)
    expected = by_loop(problem, x)
    if clip_norm is not None:
        expected = clip(expected, clip_norm)
    network = BatchedNetwork.of(model, problem.layout, shape)
    assert network is not None
    assert not network.usual
    assert network.drops == (case != 3)
    keys = Rounds(Training(), CLIENTS).at(0).dropout(0)
    x, inputs, targets, expected, keys = (t.to(DEVICE) for t in (x, inputs, targets, expected.double(), keys))
    g = network.gradients(x, inputs, targets, F.cross_entropy, torch.float32, clip_norm, keys)
    assert near(g, expected) < 1e-5
    if case == 2:
        other = network.gradients(x, inputs, targets, F.cross_entropy, torch.float32, clip_norm, keys + 1)
        assert near(other, expected) > 0.1


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("p", [0.25, 0.9999])
def test_the_kernel_drops_what_the_masks_say(p: float, channels: bool) -> None:
    a = torch.rand(3, 2, 3, 5, 7, device=DEVICE) + 1
    keys, drop, start = rng.fold(rng.seed_key(1), torch.arange(3)).to(DEVICE), Drop(Chance.of(p), channels), 11
    shape = (3, 2, 7, 1, 1) if channels else (3, 2, 7, 3, 5)
    kept = drop.chance.draw(keys, math.prod(shape[1:]), start).view(shape).permute(0, 1, 3, 4, 2)
    expected = a * kept * torch.tensor(drop.chance.scale)
    assert drop.words(a) == -(-math.prod(shape[1:]) // 4)
    drop.apply(a, keys, start)
    torch.testing.assert_close(a, expected, rtol=1e-6, atol=0)
    assert torch.equal(a == 0, (~kept).expand(a.shape))
    linear = torch.ones(3, 4, 6, device=DEVICE)
    drop.apply(linear, keys, 0)
    assert torch.equal(linear > 0, Drop(drop.chance, False).chance.draw(keys, 24, 0).view(3, 4, 6))


def test_chains_that_were_always_computed_so_are_told_apart() -> None:
    made = MnistCNN((1, 28, 28), 10)
    network = BatchedNetwork.of(made, layout(made), (1, 28, 28))
    assert network is not None
    assert network.usual
    assert not network.drops


def layout(model: nn.Module) -> Layout:
    return Layout.of(dict(model.named_parameters()))


@pytest.mark.parametrize(("model", "shape"), [(Cifar10CNN, (3, 32, 32)), (MnistCNN, (1, 28, 28))])
def test_the_papers_networks_are_supported(model: type[PaperCNN], shape: tuple[int, ...]) -> None:
    made = model(shape, 10)  # type: ignore[call-arg]
    assert BatchedNetwork.of(made, layout(made), shape) is not None


class TwoPaths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.relu = nn.ReLU()
        self.linear = nn.Linear(1024, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.conv(x))
        return self.linear((y + y).flatten(1))  # type: ignore[no-any-return]


def convolution(*after: nn.Module, **options: object) -> nn.Sequential:
    options = {"kernel_size": 3, "padding": 1} | options
    return nn.Sequential(nn.Conv2d(3, 16, **options), *after, nn.Flatten(), nn.Linear(1024, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "model",
    [
        MLP((3, 8, 8), 2),
        TwoPaths(),
        convolution(),  # no ReLU
        convolution(nn.ReLU(), kernel_size=5, padding=2),
        convolution(nn.ReLU(), bias=False),
        convolution(nn.ReLU(), padding_mode="circular"),
        convolution(nn.ReLU(), nn.AlphaDropout()),
        convolution(nn.ReLU(), OwnDropout()),
        convolution(nn.Dropout(), nn.ReLU()),
        convolution(nn.ReLU(), nn.Dropout2d(), nn.Dropout()),
        convolution(nn.ReLU(), stride=2),
        convolution(nn.GELU()),
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2)),  # not 16 channels
    ],
)
def test_other_models_are_not(model: nn.Module) -> None:
    assert BatchedNetwork.of(model, layout(model), (3, 8, 8)) is None
