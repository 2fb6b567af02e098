"""What only the simulator has is refused by every server, whatever carries its messages."""

import pytest

from fedcef.core.errors import ConfigError
from fedcef.deployment import Coordinator, without_data

from .setting import small_settings


@pytest.mark.parametrize(
    ("section", "options"), [("network", {"preset": "lte"}), ("stop", {"measure": "objective", "patience": 2})]
)
def test_a_section_that_would_have_no_effect_is_refused_and_leaves_no_folder(tmp_path, section, options):
    settings = small_settings("fedcef", **{section: options})
    with pytest.raises(ConfigError, match=rf"^\[{section}\] is for simulations, and a deployment .*; leave it out\.$"):
        Coordinator.new(settings, without_data(settings.build_problem()), tmp_path / "run")
    assert not (tmp_path / "run").exists()
