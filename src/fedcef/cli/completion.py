"""What a shell completes after Tab.  It must be quick, so nothing here loads torch: settings are read as text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

DECLARED = (("runs/settings.py", "Settings"), ("core/training.py", "Training"))
"""The files and classes that declare settings."""


def experiment(incomplete: str) -> list[str]:
    """Shipped experiments, and .toml files of the folder that is being typed."""
    files = (resources.files("fedcef") / "experiments").iterdir()
    shipped = sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    mine = sorted(path.as_posix() for path in folder.glob("*.toml"))
    return [name for name in [*shipped, *mine] if name.startswith(incomplete)]


def setting(incomplete: str) -> list[str]:
    """Keys for --set, each with its `=`; a section is chosen by the name of its part."""
    keys = [key for file, kind in DECLARED for key in _keys(file, kind)]
    return [key for key in keys if key.startswith(incomplete)]


def _keys(file: str, kind: str) -> Iterator[str]:
    """The keys that the fields of a class stand for."""
    source = (resources.files("fedcef") / file).read_text("utf-8")
    declared = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == kind)
    for node in declared.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            annotation = ast.unparse(node.annotation)
            is_section = "Section" in annotation or "Schedule" in annotation
            yield f"{node.target.id}.name=" if is_section else f"{node.target.id}="
