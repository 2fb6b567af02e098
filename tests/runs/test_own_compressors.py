"""What compresses where settings name nothing: the method's own compressor, as in Python."""

import tomllib
from dataclasses import dataclass, field, fields

import pytest

from fedcef.algorithms import ALGORITHMS, FedCEF, Qsparse
from fedcef.compressors import BlockwiseTopK, Compressor, DCTTopK, TopK
from fedcef.core.errors import ConfigError
from fedcef.core.parts import described
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.grid import default_grid
from fedcef.runs.own_compressors import own_compressor
from fedcef.runs.settings import Settings, Variant

from .setting import run_in

FILE = """
rounds = 4
num_clients = 3
[data]
name = "lasso"
dim = 40
samples = 5
support = 4
"""
OTHERS = {"sparseloco": BlockwiseTopK, "demo": DCTTopK}


@dataclass(frozen=True, kw_only=True, eq=False)
class Signs(TopK):
    """A compressor of one's own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Nested(TopK):
    """One whose options are more than numbers and words."""

    inner: Compressor = TopK()


@dataclass(frozen=True, kw_only=True, eq=False)
class Sparse(Qsparse):
    """A method of one's own, with a compressor of one's own."""

    compressor: Compressor = field(default_factory=lambda: Signs(ratio=0.25))


@dataclass(frozen=True, kw_only=True, eq=False)
class Narrow(FedCEF):
    """FedCEF with another way down."""

    down_compressor: Compressor = TopK(ratio=0.5, values="sign")


@dataclass(frozen=True, kw_only=True, eq=False)
class Unwritable(Qsparse):
    """A method whose compressor has parts of its own."""

    compressor: Compressor = Nested()


@pytest.fixture
def config(tmp_path):
    """The settings of a file without a compressor, changed."""
    path = tmp_path / "small.toml"
    path.write_text(FILE)
    return lambda *changes: load_settings(str(path), changes)


def built(config):
    return config.build_algorithm(config.build_problem())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_is_the_same_from_a_file_as_from_python(name, config):
    own, made = ALGORITHMS[name](), built(config(f"algorithm.name={name}"))
    for one in (f.name for f in fields(own) if f.name in ("compressor", "down_compressor")):
        assert type(getattr(made, one)) is type(getattr(own, one))
        assert described(getattr(made, one), {}) == described(getattr(own, one), {})
    assert (type(own.compressor) is OTHERS[name]) if name in OTHERS else (own_compressor({"name": name}) == IDENTITY)


IDENTITY = {"name": "identity"}


def test_options_without_a_name_change_the_methods_own(config):
    changed = config("algorithm.name=sparseloco", "compressor.ratio=0.5").compressor
    assert changed == {"name": "blockwise_topk", "ratio": 0.5, "values": "log2", "block": 256, "length": 4096}
    assert config("algorithm.name=demo", "compressor.kept=5").compressor["kept"] == 5
    with pytest.raises(ConfigError, match=r"There is no setting compressor\.ratio; there are compressor\.name\."):
        built(config("compressor.ratio=0.5"))


def test_what_is_named_is_taken_with_its_own_defaults(config):
    assert config("algorithm.name=sparseloco", "compressor.name=identity").compressor == IDENTITY
    assert config("algorithm.name=sparseloco", "compressor.name=topk").compressor == {"name": "topk"}


def test_each_variant_has_that_of_its_method(config):
    entries = [{"label": "a"}, {"label": "b", "set": {"algorithm.name": "sparseloco"}}]
    plain = Settings(**config().model_dump(exclude={"compressor", "compare"}, exclude_none=True), compare=entries)
    assert [v.compressor["name"] for v in plain.variants()] == ["identity", "blockwise_topk"]
    named = config("compressor.name=topk").model_copy(update={"compare": tuple(Variant(**e) for e in entries)})
    assert [v.compressor["name"] for v in named.variants()] == ["topk", "topk"]


def test_a_frontier_varies_the_methods_own(config):
    sparse = config("algorithm.name=sparseloco")
    varied = sparse.model_copy(update={"compare": default_grid(sparse)}).variants()
    assert {v.compressor["name"] for v in varied} == {"blockwise_topk"}
    assert {v.compressor["length"] for v in varied} == {4096}
    assert len({v.compressor["ratio"] for v in varied}) > 1


def test_it_is_written_down_and_a_folder_goes_on_with_what_it_has(tmp_path, config):
    path = tmp_path / "small.toml"
    run_in(tmp_path / "run", str(path), "algorithm.name=sparseloco")
    written = tomllib.loads(RunFolder(tmp_path / "run").config.read_text())
    assert written["compressor"] == own_compressor({"name": "sparseloco"})
    earlier = {**written, "compressor": IDENTITY}  # of a version in which it was dense
    assert Settings(**earlier).compressor == IDENTITY


def test_methods_of_ones_own_have_theirs(config):
    made = built(config(f"algorithm.name={__name__}:Sparse"))
    assert type(made.compressor) is Signs
    assert made.compressor.ratio == 0.25
    lossy = (f"algorithm.name={__name__}:Narrow", "algorithm.downlink=lossy")
    assert described(built(config(*lossy)).down_compressor, {}) == described(Narrow().down_compressor, {})
    assert tomllib.loads(config(*lossy).to_toml())["down_compressor"]["ratio"] == 0.5
    with pytest.raises(ConfigError, match=r"options that settings cannot hold; name one in \[compressor\]\."):
        config(f"algorithm.name={__name__}:Unwritable")
    assert config(f"algorithm.name={__name__}:Unwritable", "compressor.name=topk").compressor == {"name": "topk"}
