"""Every relative link of the README and of the documentation leads to a file, and to a heading, that is there."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("anchors", ROOT / "tools" / "docs" / "anchors.py")
anchors = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(anchors)

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)|<img[^>]*\ssrc=\"([^\"]+)\"")


def text_of(path):
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def relative_links(path):
    targets = [first or second for first, second in LINK.findall(anchors.without_code(text_of(path)))]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def broken(path):
    """What is wrong with the links of a page."""
    for target in relative_links(path):
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        if not place.exists():
            yield f"{target}: there is no such file"
        elif not place.is_relative_to(ROOT):
            yield f"{target}: leads out of the repository"
        elif anchor and place.suffix == ".md" and anchor not in anchors.anchors(place.read_text("utf-8")):
            yield f"{target}: there is no such heading"


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert list(broken(path)) == []


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# A, b & c\n\n[a](#a-b--c) [b](#b) [c](no.md) `[d](no.md)`\n```\n[e](no.md)\n```\n[f](../x)\n", "utf-8"
    )
    (tmp_path.parent / "x").touch()
    assert [problem.partition(":")[0] for problem in broken(page)] == ["#b", "no.md", "../x"]


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("3.1 Three downlinks", "31-three-downlinks"),
        ("The lossless downlink, `increment`", "the-lossless-downlink-increment"),
        ("A / B: 100 % of C's λ", "a--b-100--of-cs-λ"),
        ("[Linked](somewhere.md) name", "linked-name"),
    ],
)
def test_headings_have_the_anchors_that_github_gives_them(heading, slug):
    assert anchors.slug(heading) == slug


def test_a_heading_that_occurs_twice_is_numbered():
    assert anchors.anchors("# A\n## A\n```\n# no heading\n```\n### A\n") == {"a", "a-1", "a-2"}
