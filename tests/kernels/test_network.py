"""All clients' gradients at once against the loop over clients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedcef import kernels
from fedcef.core.layout import Layout
from fedcef.core.rng import round_key
from fedcef.oracles.oracle import Batches, ClientLoop, clip
from fedcef.problems.models import MLP, Cifar10CNN, MnistCNN, PaperCNN
from fedcef.problems.problem import Problem

if not kernels.available():
    pytest.skip("needs Triton, and CUDA or TRITON_INTERPRET=1", allow_module_level=True)

from fedcef.kernels.cnn import BatchedNetwork

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLIENTS, BATCH = 3, 2


def models() -> list[tuple[nn.Module, tuple[int, int, int]]]:
    torch.manual_seed(0)
    return [
        (PaperCNN((3, 8, 8), 10, blocks=((16, 16), (32,)), hidden=32), (3, 8, 8)),
        (PaperCNN((1, 6, 10), 5, blocks=((16,), (16,)), hidden=16), (1, 6, 10)),
        (nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30, 7)), (2, 5, 6)),
    ]


def near(g: Tensor, expected: Tensor) -> float:
    return float(torch.linalg.vector_norm(g.double() - expected) / torch.linalg.vector_norm(expected))


@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_gradients_are_those_of_the_loop_over_clients(case: int, clip_norm: float | None) -> None:
    model, shape = models()[case]
    inputs = torch.randn(CLIENTS, BATCH, *shape)
    targets = torch.randint(0, 5, (CLIENTS, BATCH))
    problem = Problem.build(model, F.cross_entropy, list(zip(inputs, targets, strict=True)))
    clients = torch.arange(CLIENTS)
    x = problem.z0 + 0.1 * torch.randn(CLIENTS, problem.layout.size)
    loop = ClientLoop(problem, Batches(0), None, workers=1)
    expected = loop.gradients(x, clients, None, round_key(0, 0, clients), 0)
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
    clients = torch.arange(CLIENTS, device="cuda")
    x, key = problem.z0.repeat(CLIENTS, 1), round_key(0, 0, clients)
    batch = Batches(64).of_round(problem, clients, key, 1)(0)
    exact, autocast = (
        ClientLoop(problem, Batches(64), None, precision).gradients(x, clients, batch, key, 0).double()  # type: ignore[arg-type]
        for precision in ("float32", "bfloat16")
    )
    network = BatchedNetwork.of(problem.model, problem.layout, (3, 32, 32))
    assert network is not None
    assert batch is not None
    ours = network.gradients(x, batch.inputs, batch.targets, F.cross_entropy, torch.bfloat16)
    assert near(ours, exact) < 1.3 * near(autocast, exact)


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
        convolution(nn.ReLU(), nn.Dropout()),
        convolution(nn.GELU()),
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2)),  # not 16 channels
    ],
)
def test_other_models_are_not(model: nn.Module) -> None:
    assert BatchedNetwork.of(model, layout(model), (3, 8, 8)) is None
