"""The compressors that a method has by itself, as sections of settings: what a file gets that names none.

They are the defaults of the method's class, so that a method is the same in a file as in Python.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from pydantic import ValidationInfo

from fedcef.algorithms import ALGORITHMS
from fedcef.compressors import COMPRESSORS, Identity
from fedcef.core.errors import ConfigError
from fedcef.core.parts import Section, described, find, options_of


def own_compressor(algorithm: Section, field: str = "compressor") -> Section:
    """The compressor that the method of this section has in this field unless it is given another.

    >>> own_compressor({"name": "sparseloco"})
    {'name': 'blockwise_topk', 'ratio': 0.015625, 'values': 'log2', 'block': 256, 'length': 4096}
    """
    method = str(algorithm.get("name"))
    compressor = _default(find("algorithm.name", method, ALGORITHMS), field)
    section, kind = described(compressor, COMPRESSORS), type(compressor)
    if kind not in COMPRESSORS.values():
        section["name"] = f"{kind.__module__}:{kind.__qualname__}"
    if set(section) != {"name", *options_of(compressor)}:
        raise ConfigError(
            f"The compressor that {method} has by itself has options that settings cannot hold; name one in [{field}]."
        )
    return section


def own_unless_named(section: Any, info: ValidationInfo) -> Any:
    """The section [compressor] of settings, checked after [algorithm]: without a name it changes the method's own."""
    if not isinstance(section, dict) or "name" in section or "algorithm" not in info.data:
        return section
    return {**own_compressor(info.data["algorithm"]), **section}


def _default(kind: type, field: str) -> Any:
    """The default of a field, made anew where the class says how; nothing is compressed where it says nothing."""
    found = next((f for f in fields(kind) if f.name == field), None)
    if found is None or found.default is found.default_factory is MISSING:
        return Identity()
    return found.default if found.default_factory is MISSING else found.default_factory()
