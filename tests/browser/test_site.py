"""The documentation's site as it is published: the selector of versions, and accessibility by axe."""

import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "",
    "guides/decisions/",
    "quickstart/",
    "api/python/",
    "settings/",
    "methods/fedcef/",
    "notebooks/first_steps/",
)
VERSIONS = (
    '[{"version": "dev", "title": "dev", "aliases": []}, {"version": "0.1", "title": "0.1", "aliases": ["latest"]}]'
)


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder and says nothing about it."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of a server on this machine that has two versions of the site, both of which are this one."""
    pytest.importorskip("mkdocs", reason="the site is built by MkDocs: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        for version in ("dev", "0.1"):
            said = {
                "DOCS_VERSIONS": "mike",
                "OFFLINE": "false",
                "SITE_URL": f"{address}{version}/",
                "DOCS_VERSION": version,
            }
            subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder / version],
                cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1", **said}, check=True,
            )  # fmt: skip
        (folder / "versions.json").write_text(VERSIONS, "utf-8")
        yield address
        server.shutdown()


@pytest.fixture
def open_page(browser):
    contexts = []

    def go(address, width=1440, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.goto(address)
        page.wait_for_selector(".md-version__current")
        return page

    yield go
    for context in contexts:
        context.close()


def test_another_version_of_the_same_page_can_be_chosen(site, open_page):
    page = open_page(f"{site}0.1/quickstart/")
    shown = page.locator(".md-version__current")
    assert shown.inner_text() == "0.1"
    shown.focus()
    page.locator(".md-version__link", has_text="dev").click()
    page.wait_for_url(f"{site}dev/quickstart/")
    page.wait_for_selector(".md-version__current")
    assert page.locator(".md-version__current").inner_text() == "dev"


def test_the_first_page_says_which_version_it_is_of(site, open_page):
    assert open_page(f"{site}dev/").get_by_text("Development version").count() == 1
    assert open_page(f"{site}0.1/").get_by_text("Development version").count() == 0


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_axe_finds_nothing_serious(site, open_page, axe, width, scheme):
    for where in PAGES:
        page = open_page(f"{site}dev/{where}", width, scheme)
        page.wait_for_load_state("networkidle")
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        serious = [(one["id"], one["nodes"][0]["target"]) for one in found if one["impact"] in ("serious", "critical")]
        assert serious == [], where
        assert page.evaluate("document.documentElement.scrollWidth") <= width, where
