"""Settings: what they build, how they are changed, and how they are written."""

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedCEF, Zhang
from fedcef.compressors import LayerwiseTopK, TopK
from fedcef.core.training import Evaluation
from fedcef.regularizers import L1, ElasticNet, OnParameters
from fedcef.runs.experiments import experiments, load_settings
from fedcef.runs.settings import Settings, Variant

from .settings_of_text import DIGITS, LASSO

# Changes


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("rounds=12", "rounds", 12),
        (" rounds = 12 ", "rounds", 12),
        ("local_lr=1e-3", "local_lr", 1e-3),
        ("local_lr=3", "local_lr", 3.0),
        ("weighting=samples", "weighting", "samples"),
        ('weighting="samples"', "weighting", "samples"),
        ("label=r = 0.1", "label", "r = 0.1"),
        ("label=", "label", ""),
        ("label='5'", "label", "5"),
        ("name=FedCEF, ours", "name", "FedCEF, ours"),
    ],
)
def test_values_are_read_as_toml_and_otherwise_as_text(config, change, key, value):
    found = getattr(config(change), key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("change", "value"),
    [("x=true", True), ("x=false", False), ("x=[1, 'a']", [1, "a"]), ("x={b = 2}", {"b": 2}), ("x=yes", "yes")],
)
def test_values_in_a_section_keep_their_type(config, change, value):
    found = config(f"algorithm.{change}").algorithm["x"]
    assert found == value
    assert type(found) is type(value)


def test_options_of_a_section_are_changed_one_by_one(config):
    changed = config("data.dim=20", "eval.every=3", "compressor.values=float16")
    assert changed.data == {"name": "lasso", "dim": 20, "samples": 5, "support": 4}
    assert changed.eval == Evaluation(every=3)
    assert changed.compressor == {"name": "topk", "ratio": 0.25, "values": "float16"}
    assert changed.rounds == 7


def test_the_last_change_of_a_key_counts(config):
    assert config("rounds=3", "rounds=4").rounds == 4


def test_naming_another_thing_drops_the_old_one_s_options(config):
    assert config("algorithm.name=zhang").algorithm == {"name": "zhang"}
    assert config("compressor.name=identity").compressor == {"name": "identity"}
    changed = config("regularizer.ridge=0.3", "regularizer.name=elastic_net")  # in whichever order
    assert changed.regularizer == {"name": "elastic_net", "ridge": 0.3}


def test_naming_the_same_thing_keeps_its_options(config):
    assert config("algorithm.name=fedcef").algorithm == {"name": "fedcef", "mixing": 0.5}


def test_a_section_that_the_file_does_not_have(config):
    assert config("model.name=mlp").model == {"name": "mlp"}


# What is built


def test_defaults(config):
    assert config(text="") == Settings(name="small")
    assert Settings().algorithm == {"name": "fedcef"}
    assert Settings().compressor == {"name": "identity"}


def test_the_name_is_the_file_s_unless_it_says_otherwise(config):
    assert config().name == "small"
    assert config(text="name = 'large'").name == "large"
    assert config("name=huge").name == "huge"


def test_a_config_cannot_be_changed(config):
    with pytest.raises(ValueError, match="frozen"):
        config().rounds = 3


def test_the_problem(config):
    problem = config().build_problem()
    assert problem.num_clients == 3
    assert problem.dim == 12
    assert problem.z0.dtype == torch.float32
    assert isinstance(problem.regularizer, L1)
    assert problem.regularizer.weight == 0.1
    double = config("precision=float64", "seed=1").build_problem()
    assert double.z0.dtype == double.train.inputs.dtype == torch.float64
    assert not torch.equal(double.z0.float(), problem.z0)


def test_the_algorithm(config):
    chosen = config("local_lr=0.2", "server_lr=3", "local_steps=5")
    problem = chosen.build_problem()
    algorithm = chosen.build_algorithm(problem)
    assert isinstance(algorithm, FedCEF)
    assert algorithm.mixing == 0.5
    assert algorithm.regularizer is problem.regularizer
    assert isinstance(algorithm.compressor, TopK)
    assert algorithm.compressor.ratio == 0.25
    assert algorithm.step == pytest.approx(3.0)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_can_be_named(config, name):
    plain = [] if ALGORITHMS[name].compresses else ["compressor.name=identity"]
    chosen = config(f"algorithm.name={name}", *plain)
    assert type(chosen.build_algorithm(chosen.build_problem())) is ALGORITHMS[name]


def test_a_regularizer_on_some_parameters(config):
    for change, layers in (("'*weight'", (0, 2, 4)), ("['1.weight', '5.*']", (0, 4, 5))):
        problem = config(f"regularizer={{name='l1', weight=0.5, on={change}}}", text=DIGITS).build_problem()
        stretches = [stretch for _, stretch, _ in problem.layout.segments()]
        chosen = torch.cat([torch.arange(stretches[i].start, stretches[i].stop) for i in layers])
        assert isinstance(problem.regularizer, OnParameters)
        assert torch.equal(problem.regularizer.chosen, chosen)
        assert problem.regularizer.inner.weight == 0.5


def test_a_regularizer_on_all_parameters_is_plain(config):
    for change in ("regularizer.on=*", "regularizer.on=['*']", "regularizer.on=['weight', '*']"):
        assert isinstance(config(change).build_problem().regularizer, L1)
    assert isinstance(config("regularizer.name=elastic_net").build_problem().regularizer, ElasticNet)


def test_the_compressor_is_fitted_to_the_model(config):
    chosen = config("compressor={name='layerwise_topk', ratio=0.5}", text=DIGITS)
    problem = chosen.build_problem()
    compressor = chosen.build_algorithm(problem).compressor
    assert isinstance(compressor, LayerwiseTopK)
    assert compressor.sizes == problem.layout.sizes == (64 * 64, 64, 64 * 64, 64, 640, 10)


# Comparisons

COMPARE = (
    LASSO
    + """
[[compare]]
label = "FedCEF"

[[compare]]
label = "Zhang"
set = { "algorithm.name" = "zhang", "compressor.name" = "identity", rounds = 9 }

[[compare]]
label = "smaller"
set = { "compressor.ratio" = 0.1 }
"""
)


def test_variants(config):
    first, second, third = config(text=COMPARE).variants()
    assert [c.label for c in (first, second, third)] == ["FedCEF", "Zhang", "smaller"]
    assert first == config("label=FedCEF")
    assert second.algorithm == {"name": "zhang"}
    assert second.compressor == {"name": "identity"}
    assert second.rounds == 9
    assert third.compressor == {"name": "topk", "ratio": 0.1}
    assert third.algorithm == {"name": "fedcef", "mixing": 0.5}
    assert all(c.compare == () for c in (first, second, third))
    assert isinstance(second.build_algorithm(second.build_problem()), Zhang)


def test_changes_come_before_the_variants(config):
    variants = config("rounds=3", "compressor.ratio=0.5", text=COMPARE).variants()
    assert [v.rounds for v in variants] == [3, 9, 3]
    assert [v.compressor.get("ratio") for v in variants] == [0.5, None, 0.1]


def test_making_variants_changes_nothing(config):
    chosen = config(text=COMPARE)
    before = chosen.model_dump()
    assert chosen.variants() == chosen.variants()
    assert chosen.model_dump() == before


# Written and read back


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ('label=r = "0.1" ü\\n', "seed=4611686018427387903", "local_lr=1e-300"),
        ("regularizer.on=['*weight', 'a\"b']", "device=cuda", "eval.every=5"),
        ("compare=[]",),
    ],
)
@pytest.mark.parametrize("text", [LASSO, DIGITS, COMPARE, ""], ids=["lasso", "digits", "compare", "empty"])
def test_written_settings_are_the_same_settings(config, text, changes):
    chosen = config(*changes, text=text)
    written = config(text=chosen.to_toml())
    sections = ("algorithm", "compressor", "regularizer", "data")  # written with their defaults
    assert written.model_dump(exclude=set(sections)) == chosen.model_dump(exclude=set(sections))
    for section in sections:
        assert getattr(chosen, section).items() <= getattr(written, section).items()
    assert written.to_toml() == chosen.to_toml()


def test_variants_are_written_by_the_name_that_files_use(config):
    text = config(text=COMPARE).to_toml()
    assert "changes" not in text
    assert config(text=text).compare[2] == Variant(label="smaller", set={"compressor.ratio": 0.1})


# What is shipped


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_is_valid_and_says_what_it_is(name):
    assert len(experiments()[name]) > 10
    chosen = load_settings(name)
    assert chosen.name == name
    problem = load_settings("demo", ["num_clients=2", "model.name=softmax", "regularizer.name=zero"]).build_problem()
    for variant in chosen.variants() if chosen.compare else [chosen]:
        update = {name: option for name, option in variant.local_update.items() if name != "no_decay"}  # of its layers
        variant = variant.model_copy(update={"local_update": update})
        assert type(variant.build_algorithm(problem)) is ALGORITHMS[variant.algorithm["name"]]
    assert len({v.label for v in chosen.compare}) == len(chosen.compare)


# Budgets and references


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("300", 300),
        ("2.5e9", 2_500_000_000),
        ("1GB", 10**9),
        ("1.5 mb", 1_500_000),
        ("7kB", 7000),
        ("12B", 12),
    ],
)
def test_amounts_of_bytes(config, text, count):
    assert config(f"budget={text}").budget == count


REFERENCE = """
[[reference]]
label = "paper"
bytes = "72.79GB"
accuracy = 0.8

[[reference]]
label = "only its bytes"
bytes = 1e9
"""


def test_references_are_read_and_are_no_setting_of_a_run(config):
    found = config(text=LASSO + REFERENCE)
    assert [(r.label, r.bytes, r.accuracy) for r in found.reference] == [
        ("paper", 72_790_000_000, 0.8),
        ("only its bytes", 10**9, None),
    ]
    assert "reference" not in found.to_toml()
    assert not found.model_copy(update={"compare": (Variant(label="a"),)}).variants()[0].reference


def test_settings_of_an_earlier_version_are_read_in_today_s_names(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text('[compressor]\nname = "randk"\nratio = 0.1\nscaled = true\nunbiased = false\n')
    settings = load_settings(str(path))
    assert settings.compressor == {"name": "randk", "ratio": 0.1, "unbiased": True}
