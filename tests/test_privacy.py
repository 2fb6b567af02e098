"""What privacy costs and covers: the accountant, which methods can have it, its settings, and a run with it."""

import json
import math
import re
import sys
from dataclasses import dataclass

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedCEF
from fedcef.algorithms.received import Received
from fedcef.compressors import Compressor, TopK
from fedcef.compressors.private import Private
from fedcef.core.errors import ConfigError
from fedcef.core.extras import install_extra
from fedcef.core.rng import round_key
from fedcef.deployment.identity import settings_digest
from fedcef.privacy import epsilon, sends_only_what_it_compresses
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run
from fedcef.wire import Dense

ABLE = [name for name, kind in ALGORITHMS.items() if kind.compresses]
LASSO = ["data.name=lasso", "data.dim=12", "data.samples=5", "data.support=4", "num_clients=4", "rounds=6"]
ON = ["privacy.clip=1.5", "privacy.noise=4"]


@pytest.fixture
def config(tmp_path):
    def load(*changes):
        path = tmp_path / "small.toml"
        path.write_text("local_steps = 2\n[compressor]\nname = 'topk'\n", "utf-8")
        return load_settings(str(path), changes)

    return load


# The accountant


def closed_form(mu: float, delta: float) -> float:
    """ε of a Gaussian mechanism with sensitivity/deviation μ (Balle, Wang 2018, Theorem 8), by bisection."""

    def normal(t: float) -> float:
        return math.erfc(-t / math.sqrt(2)) / 2

    def delta_at(eps: float) -> float:
        return normal(mu / 2 - eps / mu) - math.exp(eps) * normal(-mu / 2 - eps / mu)

    low, high = 0.0, 600.0
    assert delta_at(low) > delta > delta_at(high)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


GAUSSIANS = [(8.0, 1, 1e-5), (2.0, 5, 1e-5), (1.0, 40, 1e-6), (20.0, 100, 1e-3), (5.0, 20, 1e-10)]


@pytest.mark.parametrize(("noise", "messages", "delta"), GAUSSIANS)
def test_epsilon_is_that_of_the_composed_gaussian_mechanism(noise, messages, delta):
    """T mechanisms with sensitivity 2 and deviation σ are one with σ/√T."""
    expected = closed_form(2 * math.sqrt(messages) / noise, delta)
    assert epsilon(noise, messages, delta) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("noise", "messages", "delta"), GAUSSIANS)
def test_epsilon_is_that_of_privacy_loss_distributions(noise, messages, delta):
    """Another way to the same number, in the convention that a participant is replaced."""
    import dp_accounting as dp

    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-3)
    accountant.compose(dp.GaussianDpEvent(noise), messages)
    assert epsilon(noise, messages, delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-3)


def test_more_noise_and_fewer_messages_cost_less():
    assert epsilon(3.0, 0, 1e-5) == 0
    assert epsilon(6.0, 4, 1e-5) == pytest.approx(epsilon(3.0, 1, 1e-5))
    assert epsilon(3.0, 1, 1e-5) < epsilon(3.0, 2, 1e-5) < epsilon(2.0, 2, 1e-5) < epsilon(2.0, 2, 1e-9)
    assert math.isfinite(epsilon(1e-6, 10**4, 1e-5))


def test_a_missing_accountant_is_noticed_before_the_run(config, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    folder = RunFolder.new(tmp_path / "run")
    with pytest.raises(ConfigError, match=re.escape(install_extra("privacy"))):
        run(config(*LASSO, *ON), folder)
    assert not folder.path.exists()
    run(config(*LASSO), folder)  # who wants no privacy needs none


# Which methods can have it


@dataclass(frozen=True, eq=False)
class Mute(Compressor):
    """Sends the same whatever it is given."""

    def compress(self, x, key):
        return Dense(torch.full_like(x, 0.25))

    def contraction(self, dim):
        return None


def messages_of(algorithm, scale, rounds=3):
    """What a client sends whose gradients are so large, with a server that hears nobody else."""
    z0 = torch.linspace(-1, 1, 5)
    replica, server, client = algorithm.replica_init(z0), algorithm.server_init(z0), algorithm.client_init(z0)
    sent = []
    for t in range(rounds):
        key = round_key(0, t, torch.tensor(0))
        up, client = algorithm.local(replica, client, lambda x, k: scale * (x + k + 1), key)
        sent.append(torch.cat([payload.dense() for payload in up.values()]))
        received = Received.of({name: [payload] for name, payload in up.items()}, key.shared, share=1.0)
        down, server = algorithm.server_step(server, replica, received)
        replica = algorithm.advance(replica, down)
    return torch.stack(sent)


@pytest.mark.parametrize("name", ABLE)
def test_nothing_gets_past_the_compressor(name):
    """With one that says nothing, a client's data makes no difference to what it sends, in any round."""
    mute, plain = ALGORITHMS[name](compressor=Mute()), ALGORITHMS[name]()
    assert torch.equal(messages_of(mute, 1.0), messages_of(mute, 3.0))
    assert not torch.equal(messages_of(plain, 1.0), messages_of(plain, 3.0))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_rehearsal_tells_which_methods_can(name):
    assert sends_only_what_it_compresses(ALGORITHMS[name](), torch.zeros(5)) == (name in ABLE)


@pytest.mark.parametrize("more", ["a part", "a call"])
def test_a_method_that_sends_more_is_found_out(more):
    class Talkative(FedCEF):
        def local(self, replica, client, oracle, key):
            up, proposed = super().local(replica, client, oracle, key)
            if more == "a call":
                return {"delta": self.compressor.compress(up["delta"].dense(), key)}, proposed
            return {**up, "v": Dense(proposed["v_i"])}, proposed

    assert not sends_only_what_it_compresses(Talkative(), torch.zeros(5))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ABLE])
def test_other_methods_are_refused_in_one_sentence(config, name):
    asked = config(*LASSO, *ON, f"algorithm.name={name}", "compressor.name=identity")
    with pytest.raises(ConfigError) as error:
        asked.build_algorithm(asked.build_problem())
    assert str(error.value) == (
        f"[privacy] covers what goes through a compressor, and {name} sends more than that; take one of "
        f"{', '.join(ABLE)}, or leave [privacy] out."
    )


# Settings


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["privacy.clip=1"], "The setting privacy.noise is missing."),
        (["privacy.noise=1"], "The setting privacy.clip is missing."),
        ([*ON, "privacy.noise=0"], "privacy.noise is 0; it must be greater than 0."),
        ([*ON, "privacy.clip=inf"], "privacy.clip is inf; it must be a finite number."),
        ([*ON, "privacy.delta=1"], "privacy.delta is 1; it must be less than 1."),
        ([*ON, "privacy.sigma=1"], "There is no setting privacy.sigma; there are privacy.clip, privacy.noise,"),
        (["privacy=3"], "privacy is 3; it must be a valid dictionary"),
        ([*ON, "weighting=samples"], "[privacy] hides how many samples a client has; take weighting = 'uniform'"),
        ([*ON, "budget=1MB"], "A budget is not planned with noise in the messages;"),
    ],
)
def test_sentences(config, changes, says):
    def built(settings):
        return settings.build_algorithm(settings.build_problem())

    with pytest.raises(ConfigError) as error:
        built(config(*LASSO, *changes))
    assert str(error.value).startswith(says)


def test_it_is_off_unless_asked_for(config):
    plain = config(*LASSO)
    assert plain.privacy is None
    assert "privacy" not in plain.to_toml()
    assert isinstance(plain.build_algorithm(plain.build_problem()).compressor, TopK)


def test_settings_go_through_a_file_and_are_part_of_what_clients_must_share(config, tmp_path):
    private = config(*LASSO, *ON)
    (tmp_path / "again.toml").write_text(private.to_toml(), "utf-8")
    again = load_settings(str(tmp_path / "again.toml"))
    assert again.privacy == private.privacy
    assert again.privacy.delta == 1e-5
    assert settings_digest(again) == settings_digest(private) != settings_digest(config(*LASSO))
    assert settings_digest(config(*LASSO, *ON, "privacy.noise=5")) != settings_digest(private)
    compressor = private.build_algorithm(private.build_problem()).compressor
    assert isinstance(compressor, Private)
    assert (compressor.clip, compressor.noise, type(compressor.inner)) == (1.5, 4.0, TopK)


def test_variants_of_a_comparison_can_switch_it_on(config):
    both = "compare=[{label='a'}, {label='b', set={'privacy.clip'=1, 'privacy.noise'=2}}]"
    plain, private = config(*LASSO, both).variants()
    assert plain.privacy is None
    assert private.privacy.noise == 2


# A run


def summary_of(config, tmp_path, name="run"):
    run(config, RunFolder.new(tmp_path / name))
    return json.loads((tmp_path / name / "summary.json").read_text("utf-8"))


def test_the_summary_tells_what_the_most_active_client_gave_away(config, tmp_path):
    everyone = summary_of(config(*LASSO, *ON), tmp_path, "everyone")
    assert (everyone["epsilon"], everyone["delta"]) == (epsilon(4.0, 6, 1e-5), 1e-5)
    some = summary_of(config(*LASSO, *ON, "clients_per_round=2"), tmp_path, "some")
    # 12 messages among 4 clients, so that one has sent 3 at least; how many is fixed by the seed
    assert some["epsilon"] in [epsilon(4.0, messages, 1e-5) for messages in (3, 4, 5)]
    assert "epsilon" not in summary_of(config(*LASSO), tmp_path, "plain")


def test_a_private_run_repeats(config, tmp_path):
    first, second = (summary_of(config(*LASSO, *ON), tmp_path, name) for name in ("first", "second"))
    assert first["objective"] == second["objective"]
    assert first["objective"] != summary_of(config(*LASSO, *ON, "seed=1"), tmp_path, "other")["objective"]


DIGITS = ["data.name=digits", "data.partition=iid", "model.name=softmax", "num_clients=50", "batch_size=8",
          "local_steps=5", "local_lr=0.2", "rounds=15", "eval.every=15", "snapshot_every=0"]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "eps", "accuracy"),
    [
        (["privacy.clip=0.3", "privacy.noise=0.1"], 3300, 0.85),
        (
            ["algorithm.name=fedpaq", "compressor.name=identity", "privacy.clip=0.3", "privacy.noise=0.5"],
            185, 0.8,
        ),
    ],
    ids=["fedcef", "fedpaq"],
)  # fmt: skip
def test_digits_are_learned_at_a_stated_price(config, tmp_path, options, eps, accuracy):
    summary = summary_of(config(*DIGITS, *options), tmp_path)
    assert summary["epsilon"] == pytest.approx(eps, rel=0.01)
    assert summary["accuracy"] > accuracy
