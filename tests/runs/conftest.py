"""How tests read settings with changes."""

import pytest

from fedcef.runs.experiments import load_settings

from .settings_of_text import LASSO


@pytest.fixture
def config(tmp_path):
    """Settings of a text, changed."""

    def load(*changes, text=LASSO):
        path = tmp_path / "small.toml"
        path.write_text(text, "utf-8")
        return load_settings(str(path), changes)

    return load
