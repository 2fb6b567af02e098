"""Settings: what they build, how they are changed, and one sentence for each way to get them wrong."""

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedCEF, Zhang
from fedcef.compressors import LayerwiseTopK, TopK
from fedcef.core.errors import ConfigError
from fedcef.core.training import Evaluation
from fedcef.regularizers import L1, ElasticNet, OnParameters
from fedcef.runs.experiments import experiments, load_settings
from fedcef.runs.settings import Settings, Variant

LASSO = """
rounds = 7
num_clients = 3

[data]
name = "lasso"
dim = 12
samples = 5
support = 4

[algorithm]
name = "fedcef"
mixing = 0.5

[compressor]
name = "topk"
ratio = 0.25

[regularizer]
name = "l1"
weight = 0.1
"""

DIGITS = """
num_clients = 3
[data]
name = "digits"
partition = "iid"
[model]
name = "mlp"
"""


@pytest.fixture
def config(tmp_path):
    """Settings of a text, changed."""

    def load(*changes, text=LASSO):
        path = tmp_path / "small.toml"
        path.write_text(text, "utf-8")
        return load_settings(str(path), changes)

    return load


@pytest.fixture
def sentence(config):
    """The one sentence for what is wrong with settings, when they are read or when they are used."""

    def of(*changes, text=LASSO, of=lambda c: c.build_algorithm(c.build_problem())):
        with pytest.raises(ConfigError) as info:
            of(config(*changes, text=text))
        found = str(info.value)
        assert "\n" not in found
        assert found.endswith((".", "?"))
        return found

    return of


# What is wrong

SECTIONS = "rounds, seed, clients_per_round, batch_size"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("round=3", f"There is no setting round; there are {SECTIONS}"),
        ("lerning_rate=3", f"There is no setting lerning_rate; there are {SECTIONS}"),
        ("algoritm.name=zhang", f"There is no setting algoritm; there are {SECTIONS}"),
        ("rounds=0", "rounds is 0; it must be greater than or equal to 1."),
        ("rounds=many", "rounds is 'many'; it must be a valid integer"),
        ("rounds=2.5", "rounds is 2.5; it must be a valid integer"),
        ("rounds=[1]", "rounds is [1]; it must be a valid integer.  Lists are for `fedcef sweep`, written so:"),
        ("seed=-1", "seed is -1; it must be greater than or equal to 0."),
        (f"seed={2**62}", f"seed is {2**62}; it must be less than {2**62}."),
        ("local_lr=0", "local_lr is 0; it must be greater than 0."),
        ("local_lr=nan", "local_lr is nan; it must be a finite number."),
        ("clip_norm=-1", "clip_norm is -1; it must be greater than or equal to 0."),
        ("batch_size=-1", "batch_size is -1; it must be greater than or equal to 0."),
        ("weighting=equal", "weighting is 'equal'; it must be 'uniform' or 'samples'."),
        ("oracle=fast", "oracle is 'fast'; it must be 'auto', 'loop', 'stacked', 'batched' or 'layered'."),
        (
            "precision=half",
            "precision is 'half'; it must be 'float32', 'float64', 'tf32', 'bfloat16' or 'bfloat16_weights'.",
        ),
        ("name=5", "name is 5; it must be a valid string."),
        ("rounds.name=3", "rounds is a single value and has no name."),
        ("rounds.first=3", "rounds is a single value and has no first."),
        ("algorithm=fedcef", "algorithm is 'fedcef'; it must be a valid dictionary.  Write algorithm.name=fedcef."),
        ("eval=3", "eval is 3; it must be a valid dictionary"),
        ("eval.every=0", "eval.every is 0; it must be greater than or equal to 1."),
        (
            "eval.evry=3",
            "There is no setting eval.evry; there are eval.every, eval.train_samples, eval.clients, eval.optimum, "
            "eval.metrics, eval.per_client, eval.last_on_all.  Did you mean eval.every?",
        ),
        ("compare=3", "compare is 3; it must be a valid tuple."),
        ("compare=[{set={}}]", "The setting compare.0.label is missing."),
        (
            "compare=[{label='a', sett={}}]",
            "There is no setting compare.0.sett; there are compare.0.label, compare.0.set.  "
            "Did you mean compare.0.set?",
        ),
        ("compare=[{label='a', set=3}]", "compare.0.set is 3; it must be a valid dictionary."),
        ("algorithm.name=fedceff", "algorithm.name is 'fedceff'; it must be one of fedcef, zhang,"),
        ("algorithm.mixng=1", "There is no setting algorithm.mixng; there are algorithm.name, algorithm.mixing,"),
        ("algorithm.mixing=2", "algorithm.mixing is 2; it must be less than or equal to 1."),
        ("algorithm.local_lr=1", "There is no setting algorithm.local_lr; there are algorithm.name"),
        ("algorithm.x.y=1", "There is no setting algorithm.x.y; there are algorithm.name"),
        ("compressor.name=topp", "compressor.name is 'topp'; it must be one of identity, topk,"),
        ("compressor.rato=0.1", "There is no setting compressor.rato; there are compressor.name, compressor.ratio"),
        ("compressor.ratio=0", "compressor.ratio is 0; it must be greater than 0."),
        ("compressor.ratio=1.5", "compressor.ratio is 1.5; it must be less than or equal to 1."),
        ("compressor.ratio=big", "compressor.ratio is 'big'; it must be a valid number"),
        (
            "compressor.values=int8",
            "compressor.values is 'int8'; it must be 'native', 'float32', 'float16', 'bfloat16',",
        ),
        ("regularizer.name=l2", "regularizer.name is 'l2'; it must be one of zero, l1, elastic_net"),
        ("regularizer.wight=1", "There is no setting regularizer.wight; there are regularizer.name, "),
        ("regularizer.weight=-1", "regularizer.weight is -1; it must be greater than or equal to 0."),
        ("regularizer.on=*bias", "regularizer.on = ['*bias'] matches no parameter; there are weight."),
        ("regularizer.on=[]", "regularizer.on = [] matches no parameter; there are weight."),
        ("regularizer.on=3", "regularizer.on is 3; it must be a valid list."),
        ("regularizer.on=[3]", "regularizer.on.0 is 3; it must be a valid string."),
        ("data.name=laso", "data.name is 'laso'; it must be one of digits, mnist,"),
        ("data.dims=3", "There is no setting data.dims; there are data.name, data.dim, data.samples, data.support,"),
        ("data.dim=0", "data.dim is 0; it must be greater than or equal to 1."),
        ("model.name=mlp", "The lasso problem has its own linear model; leave the [model] section out."),
        ("device=gpu", "device is 'gpu'; it must be cpu, cuda or auto."),
        ("device=mps", "device is 'mps'; it must be cpu, cuda or auto."),
        ("device=meta", "device is 'meta'; it must be cpu, cuda or auto."),
        ("rounds", "--set takes key=value, for example --set compressor.ratio=0.01; got 'rounds'."),
        ("=3", "--set takes key=value, for example --set compressor.ratio=0.01; got '=3'."),
    ],
)
def test_sentences(sentence, change, says):
    found = sentence(change)
    assert found.startswith(says)
    if says.endswith(".") and "There is no setting" not in says:
        assert found == says


@pytest.mark.parametrize(
    ("change", "meant"),
    [
        ("round=3", "rounds"),
        ("local_rl=3", "local_lr"),
        ("clients_by_round=3", "clients_per_round"),
        ("algoritm.name=zhang", "algorithm"),
        ("eval.train_sample=3", "eval.train_samples"),
        ("algorithm.name=fedceff", "fedcef"),
        ("algorithm.name=zang", "zhang"),
        ("algorithm.mixng=1", "algorithm.mixing"),
        ("compressor.name=topp", "topk"),
        ("compressor.rato=0.1", "compressor.ratio"),
        ("regularizer.name=elasticnet", "elastic_net"),
        ("regularizer.wight=1", "regularizer.weight"),
        ("data.name=laso", "lasso"),
        ("data.dims=3", "data.dim"),
    ],
)
def test_near_misses_get_a_suggestion(sentence, change, meant):
    assert sentence(change).endswith(f".  Did you mean {meant}?")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "model.nam=3",
            "There is no setting model.nam; there are model.name, model.buffers.  Did you mean model.name?",
        ),
        ("model.name=mlpp", "model.name is 'mlpp'; it must be one of softmax, mlp, "),
        ("data.partition=fair", "data.partition is 'fair'; it must be one of iid, dirichlet, shards, "),
        ("data.alpha=0", "data.alpha is 0; it must be greater than 0."),
        ("data.dim=3", "There is no setting data.dim; there are data.name, data.partition, data.alpha, "),
        (
            "regularizer={name='l1', on='*.gain'}",
            "regularizer.on = ['*.gain'] matches no parameter; there are 1.weight, 1.bias, 3.weight, 3.bias, 5.weight, "
            "5.bias.",
        ),
    ],
)
def test_sentences_of_a_classification_problem(sentence, change, says):
    assert sentence(change, text=DIGITS).startswith(says)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cuda_where_there_is_none(sentence, device):
    found = sentence(f"device={device}")
    assert found == f"device is '{device}', but torch sees no CUDA device here; use device = 'cpu'."


def test_no_such_file(tmp_path):
    path = tmp_path / "none.toml"
    with pytest.raises(ConfigError) as info:
        load_settings(str(path))
    assert str(info.value) == f"There is no file {path}."


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match="There is no file"):
        load_settings(str(tmp_path / "folder.toml"))


def test_no_such_experiment():
    with pytest.raises(ConfigError) as info:
        load_settings("no_such_experiment")
    assert str(info.value) == (
        f"There is no experiment 'no_such_experiment'; there are {', '.join(experiments())}, or give a .toml file."
    )


@pytest.mark.parametrize("text", ["rounds = = 3", "[data", "rounds = 3\nrounds = 4", "rounds: 3"])
def test_broken_toml(sentence, tmp_path, text):
    assert sentence(text=text).startswith(f"{tmp_path / 'small.toml'} is not valid TOML: ")


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.toml is not valid TOML: "):
        load_settings(str(path))


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


def test_no_variants(sentence):
    assert sentence(of=Settings.variants) == (
        "small has no [[compare]] entries; give each run a label and a table `set` of what differs."
    )


def test_a_variant_with_a_bad_setting(sentence):
    text = LASSO + "[[compare]]\nlabel = 'a'\nset = { rouns = 3 }\n"
    found = sentence(text=text, of=Settings.variants)
    assert found.startswith("There is no setting rouns; there are rounds, ")
    assert found.endswith("  Did you mean rounds?")


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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("budget=much", "budget is 'much'; it must be a number of bytes such as 300MB or 1e9."),
        ("budget=GB", "budget is 'GB'; it must be a number of bytes"),
        ("budget=true", "budget is True; it must be a number of bytes"),
        ("budget=inf", "budget is inf; it must be a number of bytes"),
        ("budget=-1", "budget is -1; it must be greater than or equal to 0."),
        ("budget_tilt=2", "budget_tilt is 2; it must be less than or equal to 1."),
    ],
)
def test_sentences_about_budgets(sentence, change, says):
    assert says in sentence(change)


def test_a_budget_needs_a_ratio(sentence):
    says = "A budget chooses how many entries are sent; take a method that compresses, such as fedcef"
    assert says in sentence("budget=1MB", "compressor.name=identity")
    assert says in sentence("budget=1MB", "algorithm.name=zhang", "compressor.name=identity")


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


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("label = 'a'", "The setting reference.0.bytes is missing."),
        ("bytes = 5", "The setting reference.0.label is missing."),
        ("label = 'a'\nbytes = 0", "reference.0.bytes is 0; it must be greater than 0."),
        ("label = 'a'\nbytes = 5\naccuracy = 80", "reference.0.accuracy is 80; it must be less than or equal to 1."),
        ("label = 'a'\nbytes = 5\nacuracy = 1", "Did you mean reference.0.accuracy?"),
    ],
)
def test_sentences_about_references(sentence, entry, says):
    assert says in sentence(text=f"{LASSO}\n[[reference]]\n{entry}\n")


def test_settings_of_an_earlier_version_are_read_in_today_s_names(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text('[compressor]\nname = "randk"\nratio = 0.1\nscaled = true\nunbiased = false\n')
    settings = load_settings(str(path))
    assert settings.compressor == {"name": "randk", "ratio": 0.1, "unbiased": True}


@pytest.mark.parametrize("line", ["compressor = 'topk'", "compressor = [1]", "down_compressor = 3"])
def test_a_section_that_is_no_table_gets_a_sentence(sentence, line):
    assert "it must be a valid dictionary" in sentence(text=f"{line}\nrounds = 2\n")
