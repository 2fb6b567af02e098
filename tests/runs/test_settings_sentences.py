"""Settings that are wrong: one sentence for each way."""

import pytest
import torch

from fedcef.core.errors import ConfigError
from fedcef.runs.experiments import experiments, load_settings
from fedcef.runs.settings import Settings

from .settings_of_text import DIGITS, LASSO

SECTIONS = "rounds, seed, clients_per_round, batch_size"


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


def test_no_variants(sentence):
    assert sentence(of=Settings.variants) == (
        "small has no [[compare]] entries; give each run a label and a table `set` of what differs."
    )


def test_a_variant_with_a_bad_setting(sentence):
    text = LASSO + "[[compare]]\nlabel = 'a'\nset = { rouns = 3 }\n"
    found = sentence(text=text, of=Settings.variants)
    assert found.startswith("There is no setting rouns; there are rounds, ")
    assert found.endswith("  Did you mean rounds?")


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


@pytest.mark.parametrize("line", ["compressor = 'topk'", "compressor = [1]", "down_compressor = 3"])
def test_a_section_that_is_no_table_gets_a_sentence(sentence, line):
    assert "it must be a valid dictionary" in sentence(text=f"{line}\nrounds = 2\n")
