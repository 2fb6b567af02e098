"""How a regulariser learns which entries are its own and belong together, and how its options are checked."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedcef.algorithms import FedCEF, FedDA
from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.regularizers import (
    L1,
    REGULARIZERS,
    SCAD,
    Box,
    ElasticNet,
    GroupLasso,
    Nuclear,
    NuclearBall,
    OnParameters,
    Simplex,
)
from fedcef.regularizers.grouped import Block
from fedcef.regularizers.matrix import Matrix
from fedcef.runs.experiments import load_settings

from .cases import DIM, is_constraint, points

DOCS = (Path(__file__).parents[2] / "docs" / "regularizers.md").read_text("utf-8")
MODEL = Layout(("conv", "norm", "dense"), ((4, 3, 2, 2), (4,), (5, 16)))


def test_blocks_of_a_model():
    assert GroupLasso().fit(MODEL).blocks == (Block(0, 1, 4, 12), Block(52, 1, 5, 16))
    assert GroupLasso(by="input").fit(MODEL).blocks == (Block(0, 4, 3, 4), Block(52, 5, 16, 1))
    assert GroupLasso(by="tensor").fit(MODEL).blocks == (Block(0, 1, 1, 48), Block(52, 1, 1, 80))
    assert GroupLasso(sizes=(2, 2, 2, 5)).fit(MODEL).blocks == (Block(0, 1, 3, 2), Block(6, 1, 1, 5))
    assert Nuclear().fit(MODEL).matrices == (Matrix(0, 4, 12), Matrix(52, 5, 16))
    assert L1().fit(MODEL).prox(torch.ones(3), 1.0).tolist() == L1().prox(torch.ones(3), 1.0).tolist()


def test_on_parameters_fits_the_chosen_tensors():
    h = OnParameters.matching(Nuclear(0.5), MODEL, ["dense", "norm"])
    assert h.inner.matrices == (Matrix(4, 5, 16),)
    x = torch.arange(132, dtype=torch.float64).sin()
    p = h.prox(x, 1.0)
    assert torch.equal(p[:52], x[:52])
    dense = Nuclear(0.5, matrices=(Matrix(0, 5, 16),)).prox(x[52:], 1.0)
    assert torch.allclose(p[52:], dense, rtol=0, atol=1e-12)
    assert h.bounded_subgradient(132) == pytest.approx(0.5 * 5**0.5)
    assert isinstance(OnParameters.matching(Nuclear(0.5), MODEL, ["*"]), Nuclear)
    by_hand = OnParameters(Nuclear(0.5), torch.arange(48, 132)).fit(MODEL)
    assert by_hand.inner.matrices == h.inner.matrices
    for other in (torch.arange(50, 132), torch.arange(131, 47, -1)):  # no whole tensors
        assert OnParameters(GroupLasso(), other).fit(MODEL).inner.blocks == ()


@pytest.mark.parametrize(
    ("h", "message"),
    [
        (GroupLasso(), "finds no groups: none of a, b has two or more axes.  Choose other parameters"),
        (Nuclear(), "finds no matrix: none of a, b has two or more axes.  Choose other parameters with regularizer.on"),
        (GroupLasso(sizes=(4, 4)), "regularizer.sizes has the entries from 0 to before 8, which overlap others or do "),
        (GroupLasso(blocks=(Block(0, 1, 1, 3), Block(2, 1, 1, 3))), "regularizer.blocks has the entries from 2 to "),
        (NuclearBall(matrices=(Matrix(0, 2, 0),)), "regularizer.matrices has the entries from 0 to before 0"),
        (NuclearBall(matrices=(Matrix(-1, 2, 2),)), "do not lie within the 7 chosen ones."),
        (REGULARIZERS["tv"](lengths=(3, 3)), "regularizer.lengths adds up to 6; it must add up to the 7 chosen"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_does_not_fit_is_refused(h, message):
    with pytest.raises(ConfigError) as error:
        h.fit(Layout(("a", "b"), ((3,), (4,))))
    assert message in str(error.value)


@pytest.mark.parametrize("kind", [Nuclear, NuclearBall])
def test_matrices_must_be_known(kind):
    for use in (kind().value, lambda x: kind().prox(x, 1.0)):
        with pytest.raises(ConfigError, match=r"does not know which entries make a matrix: call fit\(problem.layout\)"):
            use(torch.ones(6))


# Settings


def build(*changes: str):
    config = load_settings("demo", changes)
    problem = config.build_problem()
    return problem, config.build_algorithm(problem)


def test_settings_reach_the_regularizer():
    problem, _ = build("regularizer.name=group_lasso", "regularizer.by=input", "regularizer.on=['1.*', '5.weight']")
    assert problem.regularizer.inner.blocks == (Block(0, 64, 64, 1), Block(4160, 10, 64, 1))
    problem, _ = build("regularizer={name='nuclear', weight=0.1, on='3.weight', matrices=[[0, 32, 128]]}")
    assert problem.regularizer.inner.matrices == (Matrix(0, 32, 128),)
    with pytest.raises(ConfigError, match=r"regularizer.by is 'neuron'; it must be 'output', 'input' or 'tensor'"):
        build("regularizer.name=group_lasso", "regularizer.by=neuron")
    with pytest.raises(ConfigError, match=r"regularizer.a is 2; it must be greater than 2"):
        build("regularizer.name=scad", "regularizer.a=2")


def test_steps_too_long_for_the_regularizer_are_refused():
    steps = ("local_lr=0.1", "local_steps=20", "rounds=2", "compressor.name=identity")
    for changes in (("mcp", "gamma=2.01"), ("scad", "a=3.01"), ("l0", "weight=0.1"), ("l1", "weight=0.1")):
        build(*steps, f"regularizer.name={changes[0]}", f"regularizer.{changes[1]}")
    with pytest.raises(ConfigError) as error:
        build(*steps, "regularizer.name=mcp", "regularizer.gamma=2")
    assert str(error.value) == (
        "The regulariser mcp needs proximal steps below 2, but fedcef takes steps up to 2 in 2 rounds.  Give the "
        "regulariser a larger gamma (mcp) or a (scad), or lower local_lr, server_lr or local_steps."
    )
    with pytest.raises(ConfigError, match=r"scad needs proximal steps below 2, .* steps up to 4 in 2 rounds"):
        build(*steps, "algorithm.name=fedda", "regularizer={name='scad', a=3, on='*.weight'}")


def test_the_longest_step_of_a_method():
    assert FedCEF(local_lr=0.1, local_steps=10).largest_prox_step(9) == pytest.approx(1.0)
    assert FedCEF(local_lr=0.1, local_steps=10, server_lr=0.5).largest_prox_step(9) == pytest.approx(0.9)
    assert FedDA(local_lr=0.1, local_steps=10).largest_prox_step(9) == pytest.approx(9.0)
    assert FedDA(local_lr=0.1, local_steps=10, server_lr=0.5).largest_prox_step(9) == pytest.approx(4 + 0.9)


# The page about regularisers


def test_the_page_has_a_row_for_every_regularizer():
    table = DOCS.partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == ["name", *REGULARIZERS]


@pytest.mark.parametrize("line", re.findall(r"^fedcef run demo (.*)$", DOCS, re.MULTILINE))
def test_the_page_s_commands_are_understood(line):
    changes = re.findall(r"--set ('[^']*'|\S+)", line)
    assert len(changes) == line.count("--set")
    build(*(change.strip("'") for change in changes))


# Options given in Python


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: L1(-1), "weight is -1; it must be greater than or equal to 0."),
        (lambda: L1(math.nan), "weight is nan; it must be a finite number."),
        (lambda: GroupLasso(weight=-1e-3), "weight is -0.001; it must be greater than or equal to 0."),
        (lambda: GroupLasso(by="row"), "by is 'row'; it must be 'output', 'input' or 'tensor'."),
        (lambda: replace(ElasticNet(), ridge=-2.0), "ridge is -2.0; it must be greater than or equal to 0."),
        (lambda: Simplex(0), "radius is 0; it must be greater than 0."),
        (lambda: SCAD(a=2.0), "a is 2.0; it must be greater than 2."),
        (lambda: Box(1.0, -1.0), "regularizer.lower is 1.0; it must not exceed regularizer.upper = -1.0."),
    ],
)
def test_options_are_checked_as_those_of_files_are(build, message):
    with pytest.raises(ConfigError) as error:
        build()
    assert str(error.value) == message


# On some of the parameters


@pytest.mark.parametrize("name", ["l1", "linf", "group_lasso", "slope", "simplex", "mcp"])
def test_on_parameters_acts_on_the_chosen_entries_only(name):
    h = REGULARIZERS[name]()
    chosen = torch.tensor([0, 2, 11])
    rest = [i for i in range(DIM) if i not in chosen.tolist()]
    some = OnParameters(h, chosen)
    x = points(4)
    before = x.clone()
    p = some.prox(x, 0.8)
    assert torch.equal(p[:, rest], x[:, rest])
    assert torch.equal(p[:, chosen], h.prox(x[:, chosen], 0.8))
    assert torch.equal(some.value(x), h.value(x[:, chosen]))
    assert torch.equal(x, before)
    assert some.bounded_subgradient(DIM) == h.bounded_subgradient(3)
    assert (some.weak_convexity, some.largest_step, some.captures) == (h.weak_convexity, h.largest_step, h.captures)
    if is_constraint(h):
        with pytest.raises(ConfigError):
            some.subgradient(x)
    else:
        g = some.subgradient(x)
        assert torch.equal(g[:, chosen], h.subgradient(x[:, chosen]))
        assert float(g[:, rest].abs().max()) == 0


def test_on_all_parameters_is_the_regularizer_itself():
    x = points(3)
    everywhere = OnParameters(L1(0.5), torch.arange(DIM))
    assert torch.equal(everywhere.prox(x, 0.8), L1(0.5).prox(x, 0.8))
    assert torch.equal(everywhere.value(x), L1(0.5).value(x))
