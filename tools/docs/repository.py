"""Links from a page to files of the repository outside docs/: on the site they lead to a page that shows the file.

On GitHub `[raw numbers](../benchmarks/results/gpu.json)` opens the file.  The site has no repository beside it, so
every file that is linked becomes a page below repository/: code and data as a block, Markdown as it is, a folder as a
list.
"""

import posixpath
import re
from pathlib import Path

from anchors import without_code
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)([^)]*\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "sh", ".yml": "yaml"}
LARGEST = 200_000  # characters; longer files are cut


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.docs_dir).parent
    waiting = {path for file in files.documentation_pages() for path in outside(file.src_uri, file.content_string)}
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        done.add(path)
        page = page_of(root, path)
        if (root / path).exists() and files.get_file_from_path(page) is None:  # MkDocs warns of what does not exist
            content = shown(root, path)
            files.append(File.generated(config, page, content=content))
            waiting |= set(outside(page, content)) - done
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    root = Path(config.docs_dir).parent

    def lead_to_the_page(link: re.Match[str]) -> str:
        path = repository_path(page.file.src_uri, link[2])
        if path is None:
            return link[0]
        return (
            link[1] + posixpath.relpath(f"/{page_of(root, path)}", f"/{posixpath.dirname(page.file.src_uri)}") + link[3]
        )

    return LINK.sub(lead_to_the_page, markdown)


def outside(src_uri: str, markdown: str) -> list[str]:
    """The paths in the repository, outside docs/, that a page links to."""
    targets = [link[2] for link in LINK.finditer(without_code(markdown))]
    return [path for target in targets if (path := repository_path(src_uri, target)) is not None]


def repository_path(src_uri: str, target: str) -> str | None:
    """Where a link of a page leads in the repository, or None if it stays within docs/ or leaves the repository."""
    if re.match(r"[a-z]+:|/", target):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(src_uri), target))
    return None if path.startswith(("docs/", "../")) else path


def page_of(root: Path, path: str) -> str:
    """The page that shows a file or a folder of the repository."""
    if (root / path).is_dir():
        return f"repository/{path}/index.md"
    if path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"  # by notebooks.py
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def shown(root: Path, path: str) -> str:
    """The page's text."""
    source = root / path
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n"
    if source.is_dir():
        names = sorted(
            item.name + "/" * item.is_dir() for item in source.iterdir() if not item.name.startswith(("_", "."))
        )
        return head + f"# `{path}/`\n\n" + "\n".join(f"* `{name}`" for name in names) + "\n"
    text = source.read_text("utf-8")
    if source.suffix == ".md":
        return head + moved(text, path, page_of(root, path))
    cut = "" if len(text) <= LARGEST else f"\nThe first {LARGEST:,} of {len(text):,} characters.\n"
    return head + f"# `{path}`\n{cut}\n`````{LANGUAGES.get(source.suffix, 'text')}\n{text[:LARGEST].rstrip()}\n`````\n"


def moved(markdown: str, path: str, page: str) -> str:
    """The text of a Markdown file of the repository with its links as seen from a page of the site."""

    def follow(link: re.Match[str]) -> str:
        if re.match(r"[a-z]+:|/", link[2]):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
        return link[1] + posixpath.relpath(f"/{target}", f"/docs/{posixpath.dirname(page)}") + link[3]

    return LINK.sub(follow, markdown)
