"""Where every method ends when only some of the clients take part: ℓ1 least squares, different clients, float64.

Three of nine clients a round, exact gradients.  Either |G| <= 1e-8 is reached, or TABLE states what is left and why,
and both are checked: the size from either side, the reason by taking it away.  A new method gets an entry there:

    "name": [Exact()]                        reaches the solution, with options if it needs some: Exact({"mixing": 0.5})
    "name": [Biased(0.2, COHORT, ONE_STEP)]  ends about 0.2 away, for that reason; alike clients and K = 1 would cure it
    "name": [Vanishing()]                    gets there, but too slowly for 1e-8 in a test

Entries add up: one for each variant worth a line.  A method that compresses is run with Top-k and with signs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest
import torch

from fedcef.algorithms import ALGORITHMS
from fedcef.compressors import Compressor, Identity, RandK, TopK
from fedcef.optimizers import SGD, AdamW, LocalMomentum
from fedcef.regularizers import L1, Zero
from fedcef.wire import Dense

from .setting import Quadratics, play, settle

CLIENTS, COHORT_SIZE, K, LAM = 9, 3, 3, 0.1
PROBLEM = Quadratics.random(CLIENTS, 10)
ALIKE = Quadratics(PROBLEM.a.mean(0).expand(CLIENTS, -1, -1), PROBLEM.b.mean(0).expand(CLIENTS, -1))
"""The same f, and so the same solution, with nine times the same client."""
STEP = 0.2 / PROBLEM.smoothness
"""β of those methods whose step it is, whatever K."""


class Signs(Compressor):
    """The signs of the largest entries, handed on in float64, so that means are taken in it (see the last test)."""

    def compress(self, x, key):
        return Dense(SENT_SIGNS.compress(x, key).dense().to(x.dtype))

    def contraction(self, dim):
        return SENT_SIGNS.contraction(dim)


SENT_SIGNS = TopK(ratio=0.3, values="sign")
COMPRESSORS = {"topk": TopK(ratio=0.3), "signs": Signs()}
UNBIASED = {"compressor": RandK(ratio=0.3, unbiased=True)}


@dataclass(frozen=True)
class Exact:
    """|G| <= 1e-8 with these options."""

    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Biased:
    """|G| stays about so large, for a reason that the cure takes away."""

    about: float
    because: str
    cure: Mapping[str, Any]
    """Options with which |G| <= 1e-8 is reached."""
    alike: bool = True
    """Whether the cure is for clients that are all alike."""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Vanishing:
    """|G| goes to zero, but like a power of the number of rounds."""

    options: Mapping[str, Any] = field(default_factory=dict)


COHORT = "the step is a cohort's own mean gradient, and at the solution clients differ: z jumps with the cohort"
DRIFT = "local steps are not corrected for what clients have in common: they drift apart"
JUMPS = COHORT + "; and steps along subgradients of h jump about its kinks"
MODEL = "the model itself is compressed, and at the solution loses what it loses anywhere"
CODED = "gradients are taken at z as it was sent, a few bits an entry"
ONE_PROX = "local steps without a prox and one prox a round disagree by O(αK)"

PART = "clients know the largest entries of c alone, which at the solution is a subgradient of -h, all ties"
SNAPSHOT = {"downlink": "snapshot", "down_compressor": TopK(ratio=0.3), "model_bits": 4}
ONE_STEP = {"local_steps": 1}
WHOLE = {"local_steps": 1, "compressor": Identity()}
SMOOTH = {"local_steps": 1, "regularizer": Zero()}
LONG_STEPS = {"local_lr": 0.5 / PROBLEM.smoothness}
"""For methods that solve a local problem: nearly."""

TABLE: dict[str, list[Exact | Biased | Vanishing]] = {
    "fedcef": [
        Exact(),
        Exact({"mixing": 0.5}),
        Exact({"own_part": 0.9, "mixing": 0.3}),
        Exact({"participation": "averaged"}),
        Exact({"participation": "averaged", "mixing": 0.5}),
        Exact({"downlink": "dense"}),
        Exact({"downlink": "lossy", "down_compressor": TopK(ratio=0.3)}),
        Exact({"downlink": "lossy", "down_compressor": TopK(ratio=0.3), "participation": "averaged"}),
        Exact({"downlink": "snapshot", "down_compressor": Identity(), "model_bits": 0}),
        Biased(0.02, PART, {"down_compressor": Identity()}, alike=False, options=SNAPSHOT | {"model_bits": 0}),
        Biased(0.02, CODED, {"model_bits": 0}, alike=False, options=SNAPSHOT | {"down_compressor": Identity()}),
        Biased(0.01, DRIFT, ONE_STEP, alike=False, options={"drift_weight": 0.0}),
        Exact({"local_update": LocalMomentum(momentum=0.5)}),
        Exact({"local_update": AdamW(eps=1.0, memory="client")}),
        Exact({"metric": "adam", "metric_floor": 1.0}),
        Exact({"local_update": LocalMomentum(momentum=0.5), "control": "direction"}),
    ],
    "data_parallel": [
        Biased(0.2, COHORT, ONE_STEP),
        Biased(0.2, COHORT, ONE_STEP, options={"local_update": AdamW(eps=1.0)}),
    ],
    "diloco": [Biased(0.2, JUMPS, SMOOTH, options={"local_update": SGD(), "momentum": 0.5})],
    "sparseloco": [Biased(0.2, JUMPS, SMOOTH | WHOLE, options={"local_update": SGD()})],
    "demo": [Biased(0.2, JUMPS, SMOOTH | WHOLE, options={"sign": False, "average": "all", "momentum_decay": 0.5})],
    "tamuna": [Exact(), Exact({"senders": 2}), Exact({"senders": 2, "probability": 0.5})],
    "fedcomloc": [Biased(0.4, MODEL, WHOLE, alike=False)],
    "fedavg": [Biased(0.2, COHORT, ONE_STEP)],
    "fedprox": [Biased(0.2, COHORT, ONE_STEP)],
    "fedavgm": [Biased(0.2, COHORT, ONE_STEP, options={"momentum": 0.5})],
    "fedadam": [Biased(0.2, JUMPS, SMOOTH, options={"server_lr": 0.01})],
    "fedyogi": [Biased(0.2, JUMPS, SMOOTH, options={"server_lr": 0.02})],
    "fedadagrad": [Biased(0.2, JUMPS, SMOOTH, options={"server_lr": 0.3})],
    "fedbuff": [Biased(0.2, JUMPS, SMOOTH)],
    "fetchsgd": [Biased(0.2, COHORT, {"local_steps": 1, "kept": 1.0}, options={"width": 1.0, "kept": 0.3})],
    "fedmid": [Biased(0.3, COHORT, {"local_steps": 1, "server_prox": "none"})],
    "fedda": [Biased(0.1, COHORT, ONE_STEP)],
    "fast_fedda": [Vanishing({"strong_convexity": 0.6, "anchor_weight": 3.0})],
    "c_fedda": [Vanishing({"strong_convexity": 0.6, "anchor_weight": 3.0})],
    "ef14": [Biased(0.2, COHORT, WHOLE)],
    "qsparse": [Biased(0.2, COHORT, WHOLE)],
    "fed_ef": [Biased(0.2, COHORT, WHOLE)],
    "fedpaq": [Biased(0.4, COHORT, WHOLE)],
    "scaffold": [Biased(0.005, ONE_PROX, ONE_STEP, alike=False)],
    "scallion": [Biased(0.005, ONE_PROX, ONE_STEP, alike=False, options={"scaling": 0.5})],
    "scafcom": [Biased(0.005, ONE_PROX, ONE_STEP, alike=False, options={"mixing": 0.5})],
    "ef21": [Exact()],
    "ef21_pp": [Exact()],
    "ef21_prox": [Exact()],
    "ef21_sgdm": [Exact({"mixing": 0.5})],
    "ef21_bc": [Exact({"down_ratio": 0.3})],
    "econtrol": [Exact()],
    "dasha_pp": [Exact(), Exact({"gradient_momentum": 0.3, "compression_momentum": 0.5}), Exact(UNBIASED)],
    "feddr": [Exact(LONG_STEPS), Exact(LONG_STEPS | {"start": "server", "relaxation": 0.5})],
    "fedadmm": [Exact(LONG_STEPS)],
    "feddyn": [Exact(LONG_STEPS)],
    "feddc": [Exact(LONG_STEPS)],
}

PARTIAL = {name: kind for name, kind in ALGORITHMS.items() if kind.partial_participation}


def cases(of):
    """All entries of a class, each with every compressor for it: name, entry, compressor."""
    found = []
    for name, entries in TABLE.items():
        chosen = COMPRESSORS if name in PARTIAL and PARTIAL[name].compresses else {"whole": None}
        for i, entry in enumerate(entries):
            here = {"own": None} if "compressor" in entry.options else chosen
            if isinstance(entry, of):
                found += [pytest.param(name, entry, c, id=f"{name} {i} {label}") for label, c in here.items()]
    return found


def build(name, compressor, *options):
    """The method as it is run here; with K = 1 the step is as long as with K = 3."""
    chosen = {"local_steps": K, **({"compressor": compressor} if compressor else {})}
    for more in options:
        chosen |= more
    chosen = {"local_lr": STEP / chosen["local_steps"], "regularizer": L1(LAM), **chosen}
    return PARTIAL[name](**chosen)


def distances(algorithm, rounds):
    """|G| after every round."""
    played = islice(play(algorithm, PROBLEM, COHORT_SIZE), rounds)
    models = (algorithm.trained(replica, server) for replica, _, server in played)
    return torch.tensor([PROBLEM.stationarity(model, algorithm) for model in models])


def test_every_method_for_some_of_the_clients_is_in_the_table():
    missing = ", ".join(name for name in PARTIAL if name not in TABLE)
    assert not missing, f"{missing}: no entry says where it ends; add Exact(), Biased(...) or Vanishing() to TABLE."
    unknown = ", ".join(name for name in TABLE if name not in PARTIAL)
    assert not unknown, f"{unknown}: in TABLE, but not registered as a method for some of the clients; take it out."


def test_alike_clients_have_the_same_solution():
    z = torch.ones_like(PROBLEM.z0)
    torch.testing.assert_close(PROBLEM.gradient(z), ALIKE.gradient(z), rtol=0, atol=1e-14)
    assert float(PROBLEM.oracle(z, 0).std(0).norm()) > 1


@pytest.mark.parametrize(("name", "entry", "compressor"), cases(Exact))
def test_the_solution_is_reached(name, entry, compressor):
    algorithm = build(name, compressor, entry.options)
    assert settle(algorithm, PROBLEM, 1500, 1e-8, COHORT_SIZE)[1] <= 1e-8


@pytest.mark.parametrize(("name", "entry", "compressor"), cases(Biased))
def test_what_is_left_is_as_stated(name, entry, compressor):
    left = distances(build(name, compressor, entry.options), 300)[-100:]
    assert entry.about / 3 < float(left.median()) < entry.about * 3, entry.because
    assert float(left.min()) > 1e-4  # it does not pass through the solution, either


@pytest.mark.parametrize(("name", "entry", "compressor"), cases(Biased))
def test_the_reason_is_the_reason(name, entry, compressor):
    """The same cohorts with what is said to be at fault taken away."""
    cured = build(name, compressor, entry.options, entry.cure)
    assert settle(cured, ALIKE if entry.alike else PROBLEM, 1500, 1e-8, COHORT_SIZE)[1] <= 1e-8, entry.because


@pytest.mark.parametrize(("name", "entry", "compressor"), cases(Vanishing))
def test_what_is_left_goes_away_slowly(name, entry, compressor):
    """Like 1/√t or faster, but not within these rounds."""
    left = distances(build(name, compressor, entry.options), 1600)
    early, late = float(left[100:200].median()), float(left[-800:].median())
    assert 1e-5 < late < early / 2


def test_signs_as_sent_leave_what_float32_rounds_off():
    """Their scales are float32, and so is the mean that the server adds to g: g = mean g_i up to that rounding."""
    algorithm = build("ef21", SENT_SIGNS)
    *_, (replica, clients, server) = islice(play(algorithm, PROBLEM, COHORT_SIZE), 400)
    rounded = float((server["g"] - clients["g_i"].mean(0)).norm())
    assert rounded < 1e-6
    assert PROBLEM.stationarity(replica["z"], algorithm) <= rounded + 1e-8
