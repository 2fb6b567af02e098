"""The navigation: pages that do not exist are left out, and headings get the anchors that GitHub gives them."""

from pathlib import Path
from typing import Any

from anchors import slug
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    docs = Path(config.docs_dir)
    config.nav = existing(config.nav, docs)
    return config


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """The first page has the whole width."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    return markdown


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
