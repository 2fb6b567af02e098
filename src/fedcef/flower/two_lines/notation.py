"""Compressors written as a person says them: "topk(0.01, sign)".

A name of the catalogue (docs/compressors.md), and its options in the order in which they are listed there, or by name:
`topk(0.01, sign)` is `topk(ratio=0.01, values=sign)`.  What is allowed is checked where settings are.
"""

from __future__ import annotations

import re
from typing import Any

from fedcef.compressors import COMPRESSORS, Compressor, Identity
from fedcef.core.errors import ConfigError
from fedcef.core.parts import described, find, make, options_of, validate

HALF = "half"
"""What stands for half precision without zeros, of the first model alone."""
_LEADING = ("bits", "levels", "norm")
"""Options that come before those that a compressor inherits: `eden(4)` has four bits."""
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+")


def compressor(text: str | Compressor, where: str = "compressor") -> Compressor:
    """The compressor that a text names; one that is already made is taken as it is.

    >>> compressor("topk(0.01, sign)")
    TopK(ratio=0.01, values='sign', block=256)
    """
    if isinstance(text, Compressor):
        if type(text) not in COMPRESSORS.values():
            raise ConfigError(
                f"{where} is a {type(text).__name__}, which nodes do not know; take one of the catalogue."
            )
        validate(text)
        return text
    found = _CALL.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ConfigError(f'{where} is {text!r}; it must be a compressor such as "topk(0.01, sign)" or "identity".')
    name, inside = found.group(1), found.group(2)
    if name == "auto":
        raise ConfigError(f"{where} is 'auto', which chooses in the simulator only; name what it chose there.")
    order = order_of(find(where, name, COMPRESSORS))
    options: dict[str, Any] = {}
    for place, argument in enumerate(_arguments(inside)):
        key, equals, value = argument.partition("=")
        if not equals:
            if place >= len(order):
                raise ConfigError(f"{where} is {text!r}; {name} has {len(order)} options: {', '.join(order)}.")
            key, value = order[place], argument
        options[key.strip()] = _value(value.strip())
    return make(where, COMPRESSORS, {"name": name, **options})


def order_of(kind: type[Compressor]) -> list[str]:
    """The options of a compressor in the order in which the catalogue lists them."""
    return sorted(options_of(kind), key=lambda option: option not in _LEADING)


def first_compressor(text: str | Compressor) -> Compressor | None:
    """The compressor of a run's first model; None for half precision."""
    return None if text == HALF else compressor(text, "first")


def text_of(one: Compressor) -> str:
    """A compressor as `compressor` reads it."""
    options = described(one, COMPRESSORS)
    name = options.pop("name")
    return f"{name}({', '.join(f'{key}={value}' for key, value in options.items())})"


def is_exact(one: Compressor) -> bool:
    """Whether it sends what it is given."""
    return type(one) is Identity


def _arguments(inside: str | None) -> list[str]:
    return [part for part in (inside or "").split(",") if part.strip()]


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text.strip("'\"")
