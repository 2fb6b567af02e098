"""What the source says of the fields of a class: the strings below them."""

import ast
import inspect
from itertools import pairwise
from textwrap import dedent


def field_notes(kind: type) -> dict[str, str]:
    """The strings below the fields of a class of this package, by field."""
    if not kind.__module__.startswith("fedcef."):
        return {}
    body = ast.parse(dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id: " ".join(note.value.value.split())
        for field, note in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(note, ast.Expr)
        and isinstance(note.value, ast.Constant)
        and isinstance(note.value.value, str)
    }


def all_notes(kind: type) -> dict[str, str]:
    """The same with what the class inherits."""
    return {name: note for parent in reversed(kind.__mro__) for name, note in field_notes(parent).items()}
