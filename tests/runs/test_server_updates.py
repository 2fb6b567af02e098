"""Server updates in settings: what is written down, what is refused, and that a run goes on with their memory."""

import tomllib

import pytest

from fedcef.core.errors import ConfigError
from fedcef.optimizers import SERVER_UPDATES, Adam
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.wire.checkpoint import read_checkpoint

from .setting import SETTINGS, Killed, run_in, without_time


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS)
    return str(path)


PLAIN = ["algorithm.name=fedavg", "compressor.name=identity", "server_lr=0.1", "clients_per_round=2"]


@pytest.mark.parametrize("name", [name for name in SERVER_UPDATES if name != "plain"])
def test_resuming_equals_not_stopping(tmp_path, settings, name):
    changes = [*PLAIN, f"server_update.name={name}"]
    run_in(tmp_path / "whole", settings, *changes)
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, *changes, stop_after=5)
    run_in(tmp_path / "cut", settings, *changes)
    assert without_time(tmp_path / "cut") == without_time(tmp_path / "whole")
    cut, whole = (tmp_path / run / "snapshot.bin" for run in ("cut", "whole"))
    assert cut.read_bytes() == whole.read_bytes()
    kept = {key for key in read_checkpoint(cut)[1] if key.startswith("server")}
    assert len(kept) == (1 if name == "momentum" else 2)


def test_all_options_are_written_down(tmp_path, settings):
    run_in(tmp_path / "run", settings, *PLAIN, "server_update.name=adam", "server_update.decay=0.9", "rounds=1")
    written = tomllib.loads(RunFolder(tmp_path / "run").config.read_text())
    assert written["server_update"] == {"name": "adam", "momentum": 0.9, "floor": 0.001, "decay": 0.9}


def test_a_named_method_writes_its_options_as_its_own(tmp_path, settings):
    run_in(tmp_path / "run", settings, *PLAIN, "algorithm.name=fedyogi", "algorithm.floor=0.01", "rounds=1")
    written = tomllib.loads(RunFolder(tmp_path / "run").config.read_text())
    assert "server_update" not in written
    assert written["algorithm"] == {
        "name": "fedyogi",
        "composite": "subgradient",
        "momentum": 0.9,
        "floor": 0.01,
        "decay": 0.99,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["server_update.name=momentun"], "Did you mean momentum"),
        (["server_update.name=momentum", "server_update.momentum=1"], "server_update.momentum is 1"),
        (["server_update.name=adam", "server_update.tau=1"], "There is no setting server_update.tau"),
        (["algorithm.name=fedadam", "server_update.name=yogi"], "FedAdam has a server update of its own"),
        (["algorithm.name=fedavgm", "algorithm.momentum=1.5"], "algorithm.momentum is 1.5"),
        (["algorithm.name=fedcef", "server_update.name=adam"], "The server of FedCEF does not step by a mean change"),
    ],
)
def test_what_is_refused(settings, changes, words):
    config = load_settings(settings, [*PLAIN, *changes])
    with pytest.raises(ConfigError, match=words):
        config.build_algorithm(config.build_problem())


def test_the_method_gets_the_update(settings):
    config = load_settings(settings, [*PLAIN, "server_update.name=adam", "server_update.momentum=0.5"])
    update = config.build_algorithm(config.build_problem()).server_update
    assert isinstance(update, Adam)
    assert (update.momentum, update.decay, update.floor) == (0.5, 0.99, 1e-3)
