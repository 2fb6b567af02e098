"""What `make publish-docs` asks mike for, seen by a mike that only notes it; and what the first page says then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))

MIKE = """#!/bin/sh
echo "$*; version ${DOCS_VERSION:-}; site ${SITE_URL:-}" >>asked
[ "$1" != list ] || exit "$RELEASED"
"""


def asked(folder, released=False, **environment):
    """The commands that mike gets, with and without a release on the branch."""
    (folder / "mike").write_text(MIKE, "utf-8")
    (folder / "mike").chmod(0o755)
    (folder / "asked").unlink(missing_ok=True)
    unset = ("REF", "PUSH", "SITE_URL", "REPOSITORY_URL", "DOCS_VERSION")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    subprocess.run(
        ["bash", ROOT / "tools/docs/publish.sh", folder],
        cwd=folder, env={**inherited, "RELEASED": str(int(not released)), **environment}, check=True,
    )  # fmt: skip
    return (folder / "asked").read_text("utf-8").splitlines()


def test_a_branch_is_dev_and_the_first_page_until_there_is_a_release(tmp_path):
    deployed, looked, chosen = asked(tmp_path, REF="main")
    assert deployed == "deploy --push dev; version dev; site "
    assert looked.startswith("list latest;")
    assert chosen.startswith("set-default --push dev;")
    assert len(asked(tmp_path, released=True, REF="main")) == 2


def test_a_tag_is_its_minor_version_and_latest(tmp_path):
    deployed, chosen = asked(tmp_path, REF="v1.12.3", PUSH="")
    assert deployed == "deploy --update-aliases 1.12 latest; version 1.12; site "
    assert chosen.startswith("set-default latest;")


@pytest.mark.parametrize(
    ("environment", "site"),
    [
        ({"REPOSITORY_URL": "https://github.com/Someone/fedcef"}, "https://someone.github.io/fedcef/"),
        ({"REPOSITORY_URL": "https://example.org/someone/fedcef"}, ""),
        (
            {"REPOSITORY_URL": "https://github.com/a/b", "SITE_URL": "https://docs.example.org/"},
            "https://docs.example.org/",
        ),
    ],
)
def test_the_pages_know_where_they_will_be(tmp_path, environment, site):
    assert asked(tmp_path, **environment)[0] == f"deploy --push dev; version dev; site {site}"


def test_what_was_not_released_says_so(monkeypatch):
    pytest.importorskip("mkdocs", reason="the site's pages are made by MkDocs")
    from navigation import version

    from fedcef import __version__

    monkeypatch.setenv("DOCS_VERSION", "dev")
    assert version() == f"Development version {__version__}"
    monkeypatch.setenv("DOCS_VERSION", "0.2")
    assert version() == f"Version {__version__}"
