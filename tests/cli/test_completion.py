"""What a shell completes after Tab."""

import pytest

from fedcef.cli import completion
from fedcef.cli import main as cli
from fedcef.runs.experiments import experiments
from fedcef.runs.settings import Settings


def test_experiments_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    assert completion.experiment("") == [*sorted(experiments()), "mine.toml"]
    assert completion.experiment("mn") == ["mnist", "mnist_stability"]
    assert completion.experiment("mi") == ["mine.toml"]
    assert completion.experiment(f"{tmp_path}/") == [f"{tmp_path.as_posix()}/mine.toml"]


def test_settings_are_completed():
    keys = completion.setting("")
    assert {key.rstrip("=").removesuffix(".name") for key in keys} == set(Settings.model_fields)
    assert completion.setting("alg") == ["algorithm.name="]
    assert completion.setting("local_l") == ["local_lr="]
    assert completion.setting("local_sc") == ["local_schedule.name="]


def test_the_shell_gets_completions(capsys, monkeypatch):
    for name, value in (
        ("_FEDCEF_COMPLETE", "complete_bash"),
        ("COMP_WORDS", "fedcef run fronti"),
        ("COMP_CWORD", "2"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        cli.app(prog_name="fedcef")
    assert capsys.readouterr().out.split() == ["frontier_cifar10", "frontier_digits", "frontier_mnist"]
