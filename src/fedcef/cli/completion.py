"""What a shell completes after Tab.  It must be quick, so nothing here loads torch: settings are read as text."""

from __future__ import annotations

import ast
from importlib import resources
from pathlib import Path


def experiment(incomplete: str) -> list[str]:
    """Shipped experiments, and .toml files of the folder that is being typed."""
    files = (resources.files("fedcef") / "experiments").iterdir()
    shipped = sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    mine = sorted(path.as_posix() for path in folder.glob("*.toml"))
    return [name for name in [*shipped, *mine] if name.startswith(incomplete)]


def setting(incomplete: str) -> list[str]:
    """Keys for --set, each with its `=`; sections are chosen by their name."""
    source = (resources.files("fedcef") / "runs" / "settings.py").read_text("utf-8")
    config = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    keys = []
    for node in config.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            is_section = "Section" in ast.unparse(node.annotation)
            keys.append(f"{node.target.id}.name=" if is_section else f"{node.target.id}=")
    return [key for key in keys if key.startswith(incomplete)]
