"""Local updates in settings: what is written down, what is refused, and that a run goes on with their memory."""

import tomllib

import pytest

from fedcef.core.errors import ConfigError
from fedcef.optimizers import SGD, AdamW, LocalMomentum
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.wire.checkpoint import read_checkpoint

from .setting import SETTINGS, Killed, run_in, without_time


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS)
    return str(path)


ADAMW = [
    "local_update.name=adamw",
    "local_update.memory=client",
    "local_update.warmup=5",
    "local_update.schedule=cosine",
]


@pytest.mark.parametrize(
    "changes",
    [
        [*ADAMW, "clients_per_round=2"],
        [*ADAMW, "clients_per_round=2", "store.name=disk"],
        [*ADAMW, "algorithm.metric=adam"],
        ["local_update.name=momentum", "algorithm.control=direction"],
    ],
)
def test_resuming_equals_not_stopping(tmp_path, settings, changes):
    run_in(tmp_path / "whole", settings, *changes)
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, *changes, stop_after=5)
    run_in(tmp_path / "cut", settings, *changes)
    assert without_time(tmp_path / "cut") == without_time(tmp_path / "whole")
    cut, whole = (tmp_path / run / "snapshot.bin" for run in ("cut", "whole"))
    assert cut.read_bytes() == whole.read_bytes()
    if "store.name=disk" not in changes:
        kept = {key.rpartition("/")[2] for key in read_checkpoint(cut)[1]}
        assert ({"local_m", "local_v", "local_n"} <= kept) is ("local_update.memory=client" in changes)


def test_all_options_are_written_down(tmp_path, settings):
    run_in(tmp_path / "run", settings, *ADAMW, "rounds=1", 'local_update.no_decay=["w*"]')
    written = tomllib.loads(RunFolder(tmp_path / "run").config.read_text())
    assert written["local_update"] == {
        "name": "adamw",
        "weight_decay": 0.0,
        "warmup": 5,
        "schedule": "cosine",
        "final": 0.0,
        "memory": "client",
        "momentum": 0.9,
        "decay": 0.999,
        "eps": 1e-8,
        "proximal": "metric",
        "no_decay": ["w*"],
    }


def test_the_method_gets_the_update_fitted(settings):
    def built(*changes):
        config = load_settings(settings, changes)
        return config.build_algorithm(config.build_problem()).local_update

    assert type(built()) is SGD
    update = built(*ADAMW, 'local_update.lr_factors={"w*"=0.5}')
    assert isinstance(update, AdamW)
    assert (update.total, update.lr_factors) == (24, {"w*": 0.5})
    assert update.layout.size == 40
    assert isinstance(built("local_update.name=momentum"), LocalMomentum)
    own = built("algorithm.name=diloco", "compressor.name=identity")
    assert (own.memory, own.weight_decay, own.layout.size) == ("client", 0.1, 40)
    assert built("algorithm.name=sparseloco", "local_update.decay=0.9").decay == 0.9
    assert type(built("algorithm.name=sparseloco", "local_update.name=sgd")) is SGD


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["local_update.name=adam"], "Did you mean adamw"),
        (["local_update.name=adamw", "local_update.decay=1"], "local_update.decay is 1"),
        (["local_update.momentum=0.5"], "There is no setting local_update.momentum"),
        (["local_update.name=adamw", "local_update.before=1"], "There is no setting local_update.before"),
        (["local_update.name=adamw", "regularizer.name=l2_norm"], "L2Norm is not closed in the metric of AdamW"),
        (["local_update.name=muon"], "Steps of Muon have no metric"),
        (["local_update.name=adamw", "local_update.no_decay=bias"], "'bias', which matches no parameter; there are "),
    ],
)
def test_what_is_refused(settings, changes, words):
    config = load_settings(settings, changes)
    with pytest.raises(ConfigError, match=words):
        config.build_algorithm(config.build_problem())
