"""What a CUDA graph of a round relies on: nothing reads a value back, and replaying it is the same as doing it."""

from copy import copy
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fedcef import clients
from fedcef.algorithms import ALGORITHMS, FedCEF
from fedcef.compressors import COMPRESSORS, DCTTopK, TopK
from fedcef.core.layout import Layout
from fedcef.core.rng import round_key
from fedcef.core.round import Rounds
from fedcef.core.schedules import Constant, Cosine
from fedcef.core.training import Training
from fedcef.optimizers import AdamW, LocalMomentum, Momentum, Muon, Yogi
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.augment import CropFlip
from fedcef.problems.client_data import PooledData
from fedcef.problems.fitting import fitted
from fedcef.problems.lasso import Linear, lasso
from fedcef.problems.models import MODELS
from fedcef.problems.problem import Problem, Samples
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICE = "meta"
DIM = 20
DECOUPLED = AdamW(proximal="decoupled", warmup=4)
PROBLEM = lasso(L1(0.05), num_clients=6, samples=30, dim=DIM, support=5)


class NoTransfers(TorchDispatchMode):
    """Refuses copies between devices: during a recording they would be done once and never again."""

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        result = operation(*arguments, **(options or {}))
        if "copy" in str(operation):
            tensors = [a for a in [*arguments, result] if isinstance(a, torch.Tensor)]
            places = {t.device.type for t in tensors}
            assert len(places) <= 1, f"{operation} copies between {places}"
        return result


class FakeLinear(Linear):
    def __deepcopy__(self, memo):
        return self  # fake tensors have no memory to copy


def faked(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=DEVICE)


def fake_data(data):
    """The same source with all its tensors on a GPU that is not there."""
    fake = copy(data)
    for name, value in vars(data).items():
        if isinstance(value, Samples):
            fake.__dict__[name] = Samples(faked(value.inputs), faked(value.targets))
        elif isinstance(value, torch.Tensor):
            fake.__dict__[name] = faked(value)
    return fake


def fake_problem():
    """The problem on a GPU that is not there: shapes and devices without values."""
    return replace(
        PROBLEM,
        model=FakeLinear(faked(PROBLEM.z0)),
        data=fake_data(PROBLEM.data),
        z0=faked(PROBLEM.z0),
        truth=None,
    )


def play_without_values(algorithm, **options):
    """A round on tensors that have no values: `.item()`, `bool(...)` and shapes that depend on values raise."""
    problem = fake_problem()
    simulation = Simulation(problem, algorithm, cuda_graphs=False, oracle="stacked", batch_size=5, **options)
    round_ = torch.zeros((), dtype=torch.int64, device=DEVICE)
    with torch.no_grad(), NoTransfers():
        state, _ = simulation.engine.play(simulation.state, round_)
    return algorithm.model(state.replica)


def common(**options):
    return {"local_lr": 0.01, "local_steps": 3, "regularizer": L1(0.05), **options}


@pytest.mark.parametrize("downlink", ["increment", "dense", "lossy", "snapshot"])
@pytest.mark.parametrize("cohort", [0, 2])
def test_contexts_and_running_means_read_nothing_back(downlink, cohort):
    options = common(compressor=TopK(ratio=0.2), downlink=downlink, index_code="context")
    play_without_values(FedCEF(**options), clients_per_round=cohort, averaging=0.9)


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if kind.partial_participation])
def test_a_cohort_reads_nothing_back(name):
    kind = ALGORITHMS[name]
    compressor = {"compressor": TopK(ratio=0.2)} if kind.compresses else {}
    play_without_values(kind(**common(**compressor)), clients_per_round=2)


@pytest.mark.parametrize("name", ["fedcef", "fedavg", "tamuna"])
def test_chunks_of_a_cohort_read_nothing_back(name):
    compressor = {"compressor": TopK(ratio=0.2)} if ALGORITHMS[name].compresses else {}
    play_without_values(ALGORITHMS[name](**common(**compressor)), clients_per_round=5, cohort_chunk=2)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tamuna", {"senders": 2}),
        ("compressed_scaffnew", {"senders": 2, "probability": 0.3}),
        ("fedcomloc", {"variant": "global", "compressor": TopK(ratio=0.2)}),
        ("fedcomloc", {"variant": "local", "compressor": TopK(ratio=0.2)}),
        ("scaffnew", {"probability": 0.3}),
        ("fetchsgd", {"removal": "subtract", "momentum": 0.9}),
        ("fedavg", {"server_update": Momentum(nesterov=True)}),
        ("scaffold", {"server_update": Yogi()}),
        ("fedavg", {"local_update": LocalMomentum(memory="client", warmup=4)}),
        ("fedcef", {"local_update": AdamW(memory="client", warmup=4), "compressor": TopK(ratio=0.2)}),
        ("fedcef", {"local_update": DECOUPLED, "control": "direction", "compressor": TopK(ratio=0.2)}),
        ("fedcef", {"metric": "adam", "downlink": "lossy", "compressor": TopK(ratio=0.2)}),
        ("diloco", {"local_update": AdamW(schedule="cosine").for_steps(9)}),
        ("demo", {"average": "all", "sign": False, "compressor": DCTTopK()}),
        ("demo", {"compressor": DCTTopK()}),
    ],
)
def test_no_option_reads_anything_back(name, options):
    play_without_values(ALGORITHMS[name](**common(**options)))


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_algorithm_reads_anything_back(name, scheduled):
    kind = ALGORITHMS[name]
    compressor = {"compressor": TopK(ratio=0.2)} if kind.compresses else {}
    schedule = Cosine(rounds=10) if scheduled else Constant()
    model = play_without_values(kind(**common(**compressor)), local_schedule=schedule, server_schedule=schedule)
    assert model.shape == (DIM,)
    assert model.device.type == DEVICE


@pytest.mark.parametrize("downlink", ["increment", "dense"])
@pytest.mark.parametrize("name", [name for name in COMPRESSORS if name != "auto"])  # which a run replaces by another
def test_no_compressor_reads_anything_back(name, downlink):
    play_without_values(FedCEF(**common(compressor=COMPRESSORS[name](), downlink=downlink)))


def test_some_of_the_clients_are_drawn_on_the_device():
    play_without_values(FedCEF(**common(compressor=TopK(ratio=0.2))), clients_per_round=2)


def test_a_read_back_would_be_noticed():
    class Curious(FedCEF):
        def local(self, replica, client, oracle, key):
            if replica["c"].sum() > 0:
                return super().local(replica, client, oracle, key)
            return super().local(replica, client, oracle, key)

    with pytest.raises(Exception, match=r"item\(\) cannot be called on meta tensors"):
        play_without_values(Curious(**common()))


def test_a_copy_from_the_host_would_be_noticed():
    class Careless(FedCEF):
        def local(self, replica, client, oracle, key):
            replica = {**replica, "c": replica["c"] + torch.zeros(DIM).to(replica["c"].device)}
            return super().local(replica, client, oracle, key)

    with pytest.raises(AssertionError, match="copies between"):
        play_without_values(Careless(**common()))


def network_without_values(sizes, *layers):
    """A network and clients of these sizes on the device that is not there; the sizes are known, as on the host."""
    inputs, targets = torch.empty(sum(sizes), 6, device=DEVICE), torch.empty(sum(sizes), dtype=torch.int64).to(DEVICE)
    model = torch.nn.Sequential(*layers).to(DEVICE)
    layout = Layout.of(dict(model.named_parameters()))
    known = torch.tensor(sizes)
    return Problem(
        model=model,
        loss=torch.nn.functional.cross_entropy,
        data=PooledData(Samples(inputs, targets), known.cumsum(0) - known, known),
        test=None,
        regularizer=L1(0.05),
        layout=layout,
        z0=torch.empty(layout.size, device=DEVICE),
        equal_sizes=len(set(sizes)) == 1,
    )


def gradients_without_values(problem, **options):
    """The clients' gradients in the second local step of a round."""
    oracle = make_oracle(problem, Training(**options))
    assert oracle.captures
    number = torch.zeros((), dtype=torch.int64, device=DEVICE)
    with torch.no_grad(), NoTransfers():
        round_ = Rounds(Training(**options), problem.num_clients, DEVICE).at(number)
        found = oracle.for_round(round_, 2)(problem.z0, 1)
    assert found.shape == (len(round_.clients), problem.dim)
    assert found.device.type == DEVICE


def dropping():
    """Layers of a small network with dropout."""
    linear = torch.nn.Linear
    return linear(6, 8), torch.nn.Dropout(0.4), torch.nn.ReLU(), torch.nn.AlphaDropout(), linear(8, 3)


@pytest.mark.parametrize("oracle", ["loop", "stacked"])
@pytest.mark.parametrize("cohort", [0, 2])
def test_dropout_reads_nothing_back(oracle, cohort, monkeypatch):
    monkeypatch.setattr("fedcef.oracles.loop.cores", lambda: 1)  # the guard is this thread's
    problem = network_without_values((5, 5, 5), *dropping())
    on_device = replace(problem, data=fake_data(problem.data))
    gradients_without_values(on_device, batch_size=4, oracle=oracle, clients_per_round=cohort)


@pytest.mark.parametrize("cohort", [0, 2])
def test_epochs_read_nothing_back(cohort):
    problem = network_without_values((5, 2, 9), torch.nn.Linear(6, 3))
    on_device = replace(problem, data=fake_data(problem.data))
    gradients_without_values(on_device, batch_size=4, batches="epochs", clients_per_round=cohort)


@pytest.mark.parametrize("batch_size", [0, 4])
@pytest.mark.parametrize("kind", ["drawn", "from_arrays"])
def test_clients_of_a_pool_read_nothing_back(kind, batch_size):
    pool = torch.zeros(12, 6), torch.arange(12) % 3
    made = {
        "drawn": lambda: clients.drawn(*pool, num_clients=5, size=4),
        "from_arrays": lambda: clients.from_arrays(*pool, [[0, 1], [5, 2]]),
    }
    problem = network_without_values((4, 4), torch.nn.Linear(6, 3))
    on_device = replace(problem, data=fake_data(made[kind]()))
    gradients_without_values(on_device, batch_size=batch_size, clients_per_round=2)


def test_full_batches_of_unequal_clients_read_nothing_back_if_all_take_part(monkeypatch):
    monkeypatch.setattr("fedcef.oracles.loop.cores", lambda: 1)
    gradients_without_values(network_without_values((5, 1, 9), *dropping()), batch_size=0)


def test_augmentation_reads_nothing_back():
    with FakeTensorMode():
        keys = round_key(0, 0, torch.arange(4)).own
        drawn = CropFlip().draw(keys, 6).flatten()
        assert CropFlip().apply(torch.empty(24, 3, 32, 32), drawn).shape == (24, 3, 32, 32)


# On a GPU


def images(precision, model="mnist_cnn", side=12):
    g = torch.Generator().manual_seed(0)
    data = [(torch.randn(40, 1, side, side, generator=g), torch.randint(0, 5, (40,), generator=g)) for _ in range(4)]
    torch.manual_seed(0)
    return Problem.build(
        MODELS[model]((1, side, side), 5),
        torch.nn.functional.cross_entropy,
        data,
        regularizer=L1(1e-4),
        augment=CropFlip(padding=1),
    ).to("cuda" if precision != "cpu" else "cpu")


def after(problem, algorithm, rounds=6, **options):
    simulation = Simulation(problem, algorithm, batch_size=8, **options)
    for _ in range(rounds):
        simulation.step()
    simulation.check_finite()
    return simulation


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("name", ["fedcef", "zhang", "fedda", "fedcanon", "scaffold", "feddr"])
def test_a_replayed_round_is_the_round(name, precision):
    kind = ALGORITHMS[name]
    problem = images(precision)
    compressor = {"compressor": TopK(ratio=0.1)} if kind.compresses else {}
    algorithm = kind(local_lr=0.02, local_steps=3, regularizer=problem.regularizer, **compressor)
    schedule = {"local_schedule": Cosine(rounds=6)}
    eager, captured = (
        after(problem, algorithm, precision=precision, cuda_graphs=graphs, **schedule) for graphs in (False, True)
    )
    assert captured.is_captured
    assert captured._play.is_recorded
    assert torch.equal(eager.model(), captured.model())
    assert eager.ledger.totals() == captured.ledger.totals()


@needs_cuda
@pytest.mark.parametrize(
    "options",
    [
        {"local_update": AdamW(memory="client", warmup=5, schedule="cosine", weight_decay=0.1)},
        {"local_update": Muon(proximal="decoupled", warmup=5), "control": "direction"},
        {"local_update": LocalMomentum(nesterov=True), "metric": "adam"},
        {"metric": "adam", "metric_floor": 0.01},  # of entries that were never sent
    ],
    ids=["adamw", "muon", "momentum", "metric"],
)
def test_a_replayed_round_with_a_local_optimiser_is_the_round(options):
    """Its steps know their number in the run, which one recording finds anew in every round."""
    problem = images("float32")
    algorithm = FedCEF(local_lr=0.002, local_steps=3, compressor=TopK(ratio=0.1), **options)
    algorithm = fitted(problem, algorithm, 6)
    eager, captured = (after(problem, algorithm, cuda_graphs=graphs) for graphs in (False, True))
    assert captured._play.is_recorded
    assert torch.equal(eager.model(), captured.model())


@needs_cuda
def test_the_gpu_goes_where_the_cpu_goes():
    here, there = images("cpu"), images("float32")
    algorithm = FedCEF(local_lr=0.02, local_steps=3, regularizer=L1(1e-4), compressor=TopK(ratio=0.1), mixing=0.5)
    cpu, gpu = after(here, algorithm), after(there, algorithm)
    difference = (cpu.model() - gpu.model().cpu()).norm() / cpu.model().norm()
    assert float(difference) <= 1e-5
    assert cpu.ledger.totals() == gpu.ledger.totals()


@needs_cuda
def test_captured_cohorts_are_the_same():
    problem = images("float32")
    algorithm = FedCEF(local_lr=0.02, local_steps=2, regularizer=L1(1e-4), compressor=TopK(ratio=0.1))
    eager, captured = (after(problem, algorithm, clients_per_round=2, cuda_graphs=g) for g in (False, True))
    assert torch.equal(eager.model(), captured.model())


@needs_cuda
@pytest.mark.parametrize(("oracle", "batch_size"), [("loop", 8), ("loop", 0), ("stacked", 8)])
def test_a_replayed_round_with_dropout_is_the_round(oracle, batch_size):
    """Clients of unequal size, and masks that the graph draws anew in every round."""
    g = torch.Generator().manual_seed(0)
    data = [(torch.randn(n, 6, generator=g), torch.randint(0, 3, (n,), generator=g)) for n in (30, 20, 25, 40)]
    problem = Problem.build(torch.nn.Sequential(*dropping()), torch.nn.functional.cross_entropy, data).to("cuda")
    eager, captured = (
        Simulation(problem, FedCEF(local_lr=0.02, local_steps=3), batch_size=batch_size, oracle=oracle, cuda_graphs=g)
        for g in (False, True)
    )
    for _ in range(6):
        eager.step()
        captured.step()
    assert captured.is_captured
    assert captured._play.is_recorded
    assert torch.equal(eager.model(), captured.model())
