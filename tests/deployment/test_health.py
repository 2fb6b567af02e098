"""How a run stands is told of runs only."""

import pytest

from fedcef.core.errors import RunError
from fedcef.deployment.health import health_of


def test_a_folder_without_a_run_is_said_to_be_one(tmp_path):
    for path in (tmp_path, tmp_path / "not-there"):
        with pytest.raises(RunError, match="holds no run; give the folder of a deployment's server"):
            health_of(path)
