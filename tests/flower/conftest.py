import pytest

DIGITS = {"data": {"name": "digits"}, "model": {"name": "softmax"}, "batch_size": 16}


def pytest_configure(config):
    config.addinivalue_line("markers", "flower: starts Flower's own engines; `make test-flower` runs these")


@pytest.fixture
def served(tmp_path):
    """Runs the ServerApp to its end over nodes in this process."""
    from deployment.setting import small_settings
    from fedcef.flower.client_app import app as client_app
    from fedcef.flower.run_server import run_server

    from .in_process import InProcessGrid

    settings = small_settings("fedcef", rounds=6, **DIGITS, eval={"every": 2})
    (tmp_path / "mine.toml").write_text(settings.to_toml())
    run_config = {"experiment": str(tmp_path / "mine.toml"), "set": "deployment.deadline_s=20"}

    def call(**changes):
        grid = InProcessGrid(client_app, {**run_config, **changes}, state=tmp_path / "states")
        return run_server(grid, grid.run_config)

    return settings, call
