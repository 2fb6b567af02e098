"""Local updates: PyTorch's own optimisers beside them, groups, schedules, and what they say of proximal steps."""

import math

import pytest
import torch

from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.optimizers import LOCAL_UPDATES, SGD, AdamW, LocalMomentum, Muon
from fedcef.optimizers.muon import orthogonal

LAYOUT = Layout(("embed.weight", "layer.weight", "layer.bias", "norm.weight"), ((4, 3), (3, 5), (3,), (3,)))
P = LAYOUT.size


def gradient(x, k):
    """Of something curved, and different in every step."""
    return torch.sin(3 * x + k) + 0.3 * x + 0.1


def walk(update, steps, lr, x=None, state=None, start=0):
    x = torch.linspace(-1, 1, P, dtype=torch.float64) if x is None else x
    state = update.init(x) if state is None else state
    for k in range(start, start + steps):
        direction, state = update.update(gradient(x, k), state, x, k)
        x = x - lr * direction
    return x, state


def torch_walk(kind, groups, steps, scheduler=None):
    x = torch.linspace(-1, 1, P, dtype=torch.float64)
    parts = {name: torch.nn.Parameter(part.clone()) for name, part in LAYOUT.unflatten(x).items()}
    optimizer = kind([{**options, "params": [parts[name] for name in names]} for names, options in groups])
    schedule = scheduler(optimizer) if scheduler else None
    for k in range(steps):
        found = LAYOUT.unflatten(gradient(LAYOUT.flatten(parts).detach(), k))
        for name, part in parts.items():
            part.grad = found[name].clone()
        optimizer.step()
        if schedule:
            schedule.step()
    return LAYOUT.flatten(parts).detach()


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("memory", ["round", "client"])
def test_momentum_is_torchs(nesterov, memory):
    found, _ = walk(LocalMomentum(momentum=0.8, nesterov=nesterov, memory=memory), 100, 0.05)
    expected = torch_walk(torch.optim.SGD, [(LAYOUT.names, {"lr": 0.05, "momentum": 0.8, "nesterov": nesterov})], 100)
    close(found, expected)


@pytest.mark.parametrize("memory", ["round", "client"])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95), (0.5, 0.9)])
def test_adamw_is_torchs(memory, betas):
    update = AdamW(momentum=betas[0], decay=betas[1], eps=1e-6, weight_decay=0.2, memory=memory)
    found, _ = walk(update, 100, 0.01)
    options = {"lr": 0.01, "betas": betas, "eps": 1e-6, "weight_decay": 0.2}
    close(found, torch_walk(torch.optim.AdamW, [(LAYOUT.names, options)], 100))


def test_groups_are_torchs():
    update = AdamW(weight_decay=0.3, no_decay=("*bias", "norm*"), lr_factors={"embed*": 0.1, "*bias": 2}).fit(LAYOUT)
    found, _ = walk(update, 50, 0.01)
    groups = [
        (["embed.weight"], {"lr": 0.001, "weight_decay": 0.3}),
        (["layer.weight"], {"lr": 0.01, "weight_decay": 0.3}),
        (["layer.bias"], {"lr": 0.02, "weight_decay": 0.0}),
        (["norm.weight"], {"lr": 0.01, "weight_decay": 0.0}),
    ]
    close(found, torch_walk(torch.optim.AdamW, groups, 50))


def test_warmup_and_cosine_are_torchs():
    update = AdamW(warmup=10, schedule="cosine", final=0.1).fit(LAYOUT).for_steps(40)
    x, state = None, None
    for t in range(10):  # rounds of four steps; the memory goes on, and so does its count
        now = update.after(torch.tensor(4 * t))
        x = torch.linspace(-1, 1, P, dtype=torch.float64) if x is None else x
        state = now.init(x) if state is None else state
        for k in range(4):
            n = 4 * t + k
            m = 0.9 * state["m"] + 0.1 * gradient(x, n)
            direction, after = now.update(gradient(x, n), state, x, k)
            plain, _ = AdamW().update(gradient(x, n), state, x, k)
            factor = min((n + 1) / 10, 1) * (0.1 + 0.45 * (1 + math.cos(math.pi * max(0, n - 10) / 30)))
            close(direction, factor * plain)
            close(after["m"], m)
            x, state = x - 0.01 * direction, after
    assert float(update.after(torch.tensor(40)).factor(0)) == pytest.approx(0.1)
    assert update.factor(0) == 1.0  # outside of rounds
    assert AdamW().after(torch.tensor(3)).before is None  # nothing changes where nothing is scheduled
    with pytest.raises(ConfigError, match="must know how many there are"):
        AdamW(schedule="cosine").after(torch.tensor(0)).factor(0)


def test_a_stack_is_its_rows():
    """One client by itself, and several at once that began at the same point."""
    for update in (LocalMomentum(), AdamW(memory="client"), Muon(arithmetic="native").fit(LAYOUT)):
        z = torch.linspace(-1, 1, P, dtype=torch.float64)
        shifts = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
        x, state = z, update.init(z)
        for k in range(3):
            direction, state = update.update(gradient(x + shifts, k), state, x, k)
            x = x - 0.1 * direction
        for row, shift in zip(x, shifts, strict=True):
            y, own = z, update.init(z)
            for k in range(3):
                direction, own = update.update(gradient(y + shift, k), own, y, k)
                y = y - 0.1 * direction
            close(row, y)


@pytest.mark.parametrize("kept", ["round", "client"])
@pytest.mark.parametrize(
    "make",
    [
        lambda kept: LocalMomentum(momentum=0.7, memory=kept),
        lambda kept: LocalMomentum(momentum=0.7, nesterov=True, memory=kept, lr_factors={"embed*": 0.5}).fit(LAYOUT),
        lambda kept: AdamW(memory=kept),
        lambda kept: AdamW(memory=kept, lr_factors={"layer*": 3.0}).fit(LAYOUT),
        lambda kept: AdamW(memory=kept, warmup=20).after(torch.tensor(3)),
    ],
)
def test_the_reach_is_the_direction_of_a_gradient_that_stays(make, kept):
    update, g = make(kept), torch.linspace(0.5, 2, P, dtype=torch.float64)
    x, state = torch.zeros_like(g), None
    state = update.init(x)
    for k in range(6):
        direction, state = update.update(g, state, x, k)
        close(direction, update.reach(state, k) * g)


def test_the_gain_is_the_mean_of_the_reach():
    for nesterov in (False, True):
        update = LocalMomentum(momentum=0.7, nesterov=nesterov, warmup=4).after(torch.tensor(1))
        each = [float(update.reach({}, k)) for k in range(5)]
        assert float(update.gain(5)) == pytest.approx(sum(each) / 5, abs=1e-14)
    assert LocalMomentum(momentum=0.75, memory="client").gain(3) == 4
    assert (SGD().gain(7), AdamW().gain(7)) == (1, 1)


# Muon


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (2, 3, 4, 7)])
def test_the_quintic_finds_the_orthogonal_factor(shape):
    """Singular values come near one, and singular vectors stay."""
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonal(matrix, 5)
    diagonal = u.mT @ found @ vt.mT
    values = torch.diagonal(diagonal, dim1=-2, dim2=-1)
    wanted = s / torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    for _ in range(5):
        wanted = 3.4445 * wanted - 4.7750 * wanted**3 + 2.0315 * wanted**5
    close(diagonal - torch.diag_embed(values), torch.zeros_like(diagonal), 1e-10)
    close(values, wanted, 1e-6)  # but for the 1e-7 in the norm
    seen = values[s > 0.05 * s.amax(-1, keepdim=True)]
    assert float(seen.min()) > 0.6
    assert float(seen.max()) < 1.3


def test_muon_by_hand():
    update = Muon(arithmetic="native", scale="spectral", momentum=0.8, weight_decay=0.1).fit(LAYOUT)
    x = torch.linspace(-1, 1, P, dtype=torch.float64)
    g = gradient(x, 0)
    direction, state = update.update(g, update.init(x), x, 0)
    parts, found = LAYOUT.unflatten(g), LAYOUT.unflatten(direction - 0.1 * x)
    close(found["layer.weight"], orthogonal(0.2 * parts["layer.weight"] + 0.8 * 0.2 * parts["layer.weight"], 5))
    for name in ("embed.weight", "layer.bias", "norm.weight"):  # AdamW's first step is the sign
        close(found[name], parts[name].sign(), 1e-6)
    assert set(state) == {"m", "adam_m", "adam_v"}
    assert (len(state["m"]), len(state["adam_m"])) == (15, P - 15)
    rms = Muon(arithmetic="native", adamw_on=()).fit(LAYOUT)
    direction, _ = rms.update(g, rms.init(x), x, 0)
    close(LAYOUT.unflatten(direction)["embed.weight"], 0.2 * 2 * orthogonal(parts["embed.weight"], 5), 1e-6)


def test_muon_needs_the_layers():
    with pytest.raises(ConfigError, match="Muon must know which parameters are matrices"):
        Muon().init(torch.zeros(3))


@pytest.mark.parametrize("name", [name for name in LOCAL_UPDATES if name != "sgd"])
@pytest.mark.parametrize("memory", ["round", "client"])
def test_they_leave_their_arguments_alone_and_read_nothing_back(name, memory):
    update = LOCAL_UPDATES[name](memory=memory, weight_decay=0.1, warmup=3, no_decay=["*bias"], lr_factors={"e*": 2})
    update = update.fit(LAYOUT)
    x, g = torch.randn(3, P), torch.randn(3, P)
    state = {name: vector.expand(3, -1) + 0.1 for name, vector in update.init(x[0]).items()}
    before = [t.clone() for t in (x, g, *state.values())]
    update.update(g, state, x, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, g, *state.values()), strict=True))
    assert all(vector.shape in ((P,), (1,)) for vector in update.init(x[0]).values()) or name == "muon"
    x = torch.empty(3, P, device="meta")
    update = update.after(torch.empty((), dtype=torch.int64, device="meta"))
    direction, after = update.update(x, update.init(x), x, 2)
    assert direction.device.type == "meta"
    if update.metric != "none":
        update.reach(after, 2)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: AdamW(no_decay="head*").fit(LAYOUT),
            r"no_decay has 'head\*', which matches no parameter; there are emb",
        ),
        (lambda: AdamW(lr_factors={"x": 2}).fit(LAYOUT), "lr_factors has 'x', which matches no parameter"),
        (lambda: AdamW(lr_factors={"head*": -1}), "lr_factors.head\\* is -1; it must be greater than 0"),
        (lambda: AdamW(lr_factors={"head*": 0}), "lr_factors.head\\* is 0; it must be greater than 0"),
        (lambda: AdamW(lr_factors=["head*"]), "lr_factors is \\['head\\*'\\]; it must be a valid dictionary"),
        (lambda: AdamW(no_decay=[1]), "no_decay.0 is 1; it must be a valid string"),
        (lambda: AdamW(decay=1.0), r"decay is 1\.0; it must be less than 1\."),
        (lambda: AdamW(memory="always"), "memory is 'always'; it must be 'round' or 'client'"),
        (lambda: walk(AdamW(weight_decay=1.0, no_decay="*bias"), 1, 0.1), "Groups of parameters need their names"),
    ],
)
def test_mistakes_are_told_in_a_sentence(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()
