"""From Flower's configs to a run's settings, and bytes in its records."""

from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from deployment.setting import small_settings
from fedcef.core.errors import ConfigError
from fedcef.flower.records import STYPE, bytes_of, with_bytes
from fedcef.flower.settings import client_number, experiment, resumed, state_folder


def test_bytes_travel_as_they_are():
    blob = bytes(range(256)) * 3
    record = with_bytes(blob)
    (array,) = record.array_records["fedcef"].values()
    assert (array.stype, array.data) == (STYPE, blob)
    assert bytes_of(SimpleNamespace(content=record)) == blob


def test_settings_come_from_the_run_config_and_the_node_s_own_changes(tmp_path):
    (tmp_path / "mine.toml").write_text(small_settings("fedcef").to_toml())
    run_config = {"experiment": str(tmp_path / "mine.toml"), "set": "rounds=3 compressor.ratio=0.2 label='two words'"}
    settings = experiment(run_config, {"set": "device=auto"})
    assert (settings.rounds, settings.compressor["ratio"], settings.label, settings.device) == (
        3,
        0.2,
        "two words",
        "auto",
    )


def test_an_experiment_is_looked_for_in_the_app_first(tmp_path, monkeypatch):
    for folder, rounds in (("app", 3), ("here", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text(small_settings("fedcef", rounds=rounds).to_toml())
    monkeypatch.chdir(tmp_path / "here")
    assert experiment({"experiment": "mine.toml"}).rounds == 4
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    assert experiment({"experiment": "mine.toml"}).rounds == 3
    assert experiment({"experiment": "lasso"}).name == "lasso"


@pytest.mark.parametrize("section", ["network.preset=lte", "stop.measure=objective"])
def test_what_only_simulations_have_is_refused(tmp_path, section):
    from fedcef.flower.run_server import run_server

    (tmp_path / "mine.toml").write_text(small_settings("fedcef").to_toml())
    run_config = {"experiment": str(tmp_path / "mine.toml"), "set": section, "out": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match=rf"\[{section.partition('.')[0]}\] is for simulations, and a deployment"):
        run_server(SimpleNamespace(), run_config)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: experiment({}), "names no experiment"),
        (lambda: experiment({"experiment": "none.toml"}), "There is no file none.toml"),
        (lambda: experiment({"experiment": "lasso", "set": "rounds='1"}), "set is .*; it must be like"),
        (lambda: experiment({"experiment": "lasso", "set": 7}), "set is 7; it must be a text"),
        (lambda: experiment({"experiment": "lasso", "set": "deployment.min=3"}), "There is no setting deployment.min;"),
        (lambda: client_number({}), "This node's number is None"),
        (lambda: client_number({"partition-id": "x"}), "This node's number is 'x'"),
        (lambda: resumed({"resume": "a", "out": "b"}), "leave `out` out"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(call, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call()


def test_where_a_client_keeps_its_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEDCEF_STATE", raising=False)
    assert state_folder({}, {}, 3) == tmp_path / "home" / "fedcef" / "client-3"
    assert state_folder({"state-dir": "/run"}, {}, 3).parts[1:] == ("run", "client-3")
    monkeypatch.setenv("FEDCEF_STATE", "/env")
    assert state_folder({"state-dir": "/run"}, {}, 3).parts[1:] == ("env", "client-3")
    assert state_folder({"state-dir": "/run"}, {"state-dir": "/node"}, 3).parts[1:] == ("node", "client-3")
