"""A page must not ask the network for anything: the build fails if one would."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

LOADS = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\ssrc=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|next|prev))[^>]*?\shref=["']?(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//"""
)


def on_post_build(config: MkDocsConfig) -> None:
    pages = [path for path in Path(config.site_dir).rglob("*") if path.suffix in {".html", ".css", ".svg"}]
    for path in pages:
        if found := LOADS.search(path.read_text("utf-8")):
            raise PluginError(f"{path} loads something from the network: {found[0]}…")
