"""The navigation: pages that do not exist are left out, headings get GitHub's anchors, the first page its version."""

import os
from pathlib import Path
from typing import Any

from anchors import slug
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

from fedcef import __version__

VERSION = "<!-- version -->"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    docs = Path(config.docs_dir)
    config.nav = existing(config.nav, docs)
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """The first page has the whole width, and says of which version it is."""
    if not page.is_homepage:
        return markdown
    page.meta["hide"] = ["navigation", "toc"]
    repository = f" · [repository]({config.repo_url})" if config.repo_url else ""
    return markdown.replace(VERSION, version() + repository)


def version() -> str:
    """Which version the site describes; that of a branch is not what was or will be released under its number."""
    kind = "Development version" if os.environ.get("DOCS_VERSION") == "dev" else "Version"  # tools/docs/publish.sh
    return f"{kind} {__version__}"


def existing(nav: Any, docs: Path) -> Any:
    """The same navigation without pages that are not there; generated folders are taken on trust."""
    kept = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            kept.append({title: existing(target, docs)})
        elif target.startswith(("methods/", "notebooks/", "repository/")) or (docs / target).exists():
            kept.append(entry)
    return kept
