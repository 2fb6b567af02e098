"""Which fedcef is where: no app depends on the package by its name, and nodes with other code are named."""

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

from deployment.setting import small_settings
from fedcef.core import origin
from fedcef.flower import client_app

from .setting import Deployed

ROOT = Path(__file__).parents[2]
APPS = [path for folder in ("examples", "faults") for path in sorted((ROOT / folder).rglob("pyproject.toml"))]


@pytest.mark.parametrize("path", APPS, ids=lambda path: str(path.relative_to(ROOT).parent))
def test_no_app_depends_on_the_package_by_its_name(path):
    """Flower installs what an app depends on, and the name is not ours yet."""
    project = tomllib.loads(path.read_text("utf-8"))["project"]
    groups = [project.get("dependencies", ()), *project.get("optional-dependencies", {}).values()]
    named = [line for group in groups for line in group if line.startswith("fedcef")]
    assert [line for line in named if "@" not in line] == []  # which names a place


def test_a_package_that_came_by_its_name_is_told_from_one_of_a_folder(monkeypatch):
    class Installed:
        def __init__(self, told):
            self.told = told

        def read_text(self, name):
            return self.told if name == "direct_url.json" else ""

    for told, where in {None: "", '{"url": "file:///srv/fedcef", "dir_info": {}}': "/srv/fedcef"}.items():
        monkeypatch.setattr(origin.metadata, "distribution", lambda package, told=told: Installed(told))
        assert origin.installed_from() == where


def test_a_node_with_other_code_is_named(tmp_path, monkeypatch):
    codes = iter(["f00d", *[origin.fingerprint()] * 100])
    monkeypatch.setattr(client_app, "fingerprint", lambda: next(codes))
    deployed = Deployed(small_settings("fedcef", rounds=1), tmp_path).run()
    (said,) = [sentence for sentence in deployed.told if "other code" in sentence]
    assert "(f00d)" in said
    assert deployed.records[0]["accepted"] == 5
