"""What a hint says works: decided by how fedcef was installed, and by which Python runs it."""

import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedcef.core import extras, origin
from fedcef.core.errors import ConfigError
from fedcef.core.extras import install, install_extra, needed

PACKAGE = Path(extras.__file__).parents[1]


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Pretend that fedcef was installed as pip notes it in direct_url.json, in the environment that is active."""

    requires = origin.metadata.requires("fedcef")

    def pretend(direct=None):
        told = json.dumps(direct) if direct else None
        here = SimpleNamespace(read_text={"direct_url.json": told}.get, requires=requires)
        monkeypatch.setattr(origin.metadata, "distribution", lambda package: here)

    monkeypatch.setattr(extras.shutil, "which", lambda name: str(Path(sys.executable).with_name(name)))
    monkeypatch.chdir(tmp_path)
    return pretend


def test_from_an_index_the_name_will_do(installed):
    installed()
    assert install_extra("plot") == "pip install 'fedcef[plot]'"


def test_a_checkout_is_named_by_its_folder(installed, tmp_path, monkeypatch):
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    url = checkout.as_uri()  # with %20
    installed({"url": url, "dir_info": {"editable": True}})
    assert install_extra("plot") == f"pip install -e '{checkout}[plot]'"
    assert install_extra("", "--force-reinstall") == f"pip install --force-reinstall -e '{checkout}'"
    monkeypatch.chdir(checkout)
    assert install_extra("plot") == "pip install -e '.[plot]'"
    installed({"url": url, "dir_info": {}})
    assert install_extra("plot") == "pip install '.[plot]'"


def test_a_wheel_is_named_while_it_is_there_and_afterwards_what_it_asks_for(installed, tmp_path):
    wheel = tmp_path / "fedcef-0-py3-none-any.whl"
    wheel.touch()
    installed({"url": wheel.as_uri(), "archive_info": {}})
    assert install_extra("plot") == f"pip install '{wheel}[plot]'"
    wheel.unlink()
    words = shlex.split(install_extra("plot"))
    assert words[:2] == ["pip", "install"]
    assert [word.partition(">")[0] for word in words[2:]] == ["matplotlib"]


def test_a_repository_is_named_with_its_commit(installed):
    installed({"url": "https://example.org/f.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}})
    assert install_extra("plot") == "pip install 'fedcef[plot] @ git+https://example.org/f.git@c0ffee'"


def test_what_is_not_installed_lies_in_a_checkout(installed, monkeypatch):
    def absent(package):
        raise origin.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(origin.metadata, "distribution", absent)
    assert origin.Origin.here() == origin.Origin(str(PACKAGE.parents[1]), editable=True)


def test_the_pip_is_that_of_the_environment(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(extras.shutil, "which", lambda name: "/elsewhere/bin/pip")
    monkeypatch.setattr(extras.sys, "executable", str(tmp_path / ".venv/bin/python"))
    assert install("h5py") == ".venv/bin/python -m pip install h5py"
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert install("h5py") == "uv pip --python .venv/bin/python install h5py"


def test_a_missing_package_is_a_sentence_with_the_command():
    with pytest.raises(ConfigError) as refused:
        needed("there_is_no_such_package.part", "a test", "plot")
    assert str(refused.value) == (
        f"For a test there_is_no_such_package is needed; install it with: {install_extra('plot')}"
    )


def test_no_hint_of_the_package_is_written_by_hand():
    """Sentences and remedies ask core/extras.py; only it may say `pip install`."""
    hints = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"pip install|fedcef\[", path.read_text("utf-8"))
    }
    assert hints == set()
