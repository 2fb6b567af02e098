"""From names and options to objects: the border at which settings are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fedcef.core.errors import ConfigError

if TYPE_CHECKING:
    from fedcef.algorithms.algorithm import Algorithm
    from fedcef.regularizers import Regularizer

T = TypeVar("T")


def make(section: str, registry: Mapping[str, type[T]], options: Mapping[str, Any], **given: Any) -> T:
    """The registered dataclass that options["name"] names, with its other options checked field by field.

    `given` are fields that come from elsewhere and are no options of this section.
    """
    kind = registry[choose(f"{section}.name", options.get("name"), registry)]
    own = [f.name for f in fields(kind) if f.name not in given]  # type: ignore[arg-type]
    for key in options:
        if key not in ["name", *own]:
            allowed = dict.fromkeys(["name", *own])
            raise ConfigError(unknown_key(f"{section}.{key}", [f"{section}.{name}" for name in allowed]))
    values = {key: value for key, value in options.items() if key in own}
    hints = get_type_hints(kind, include_extras=True)
    checked = {key: check(f"{section}.{key}", hints[key], value) for key, value in values.items()}
    return kind(**checked, **given)


def validate(thing: Any) -> None:
    """Check the plain fields of an object that was made by hand as those of one from a file are checked."""
    hints = get_type_hints(type(thing), include_extras=True)
    for f in fields(thing):
        value = getattr(thing, f.name)
        if isinstance(value, bool | int | float | str):
            check(f.name, hints[f.name], value)


def check_prox_steps(h_name: str, h: Regularizer, name: str, algorithm: Algorithm, rounds: int) -> None:
    """Refuse a weakly convex regulariser whose proximal operator would be multivalued for the steps taken."""
    limit, longest = h.largest_step, algorithm.largest_prox_step(rounds)
    if 0 < limit <= longest:
        raise ConfigError(
            f"The regulariser {h_name} needs proximal steps below {limit:g}, but {name} takes steps up to {longest:g} "
            f"in {rounds} rounds.  Give the regulariser a larger gamma (mcp) or a (scad), or lower local_lr, server_lr "
            "or local_steps."
        )


def completed(
    registry: Mapping[str, type[Any]], options: Mapping[str, Any], *, without: Iterable[str] = ()
) -> dict[str, Any]:
    """The options with the named thing's defaults filled in, as a record of what was run."""
    kind = registry.get(str(options.get("name")))
    if kind is None:
        return dict(options)
    plain = {f.name: f.default for f in fields(kind) if isinstance(f.default, bool | int | float | str)}
    shown = {key: value for key, value in plain.items() if key not in set(without)}
    return {"name": options["name"], **shown, **options}


def check(key: str, kind: Any, value: Any) -> Any:
    """The value as the given type, or an error that says what the key allows."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ConfigError(explain(error, key)) from None


def choose(key: str, name: Any, allowed: Iterable[str]) -> str:
    """The name if it is one of the allowed ones."""
    allowed = list(allowed)
    if name not in allowed:
        raise ConfigError(f"{key} is {name!r}; it must be one of {', '.join(allowed)}.{suggest(str(name), allowed)}")
    return str(name)


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    allowed = list(allowed)
    return f"There is no setting {key}; there are {', '.join(allowed)}.{suggest(key, allowed)}"


def explain(error: ValidationError, key: str = "") -> str:
    """The first thing that pydantic found wrong, as a sentence."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in ([key] if key else []) + list(first["loc"]))
    message = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    message = message.partition(", unable to parse")[0].partition(", got a number")[0]
    given = first["input"]
    if first["type"] == "missing":
        return f"The setting {where} is missing."
    hint = ""
    if first["type"] == "dict_type" and isinstance(given, str):
        hint = f"  Write {where}.name={given}."
    elif isinstance(given, list) or (isinstance(given, str) and (given.startswith("[") or "," in given)):
        hint = f"  Lists are for `fedcef sweep`, written so: --set '{where}=[0,1]'."
    return f"{where} is {given!r}; it must be {message}.{hint}"


def suggest(word: str, allowed: Iterable[str]) -> str:
    """A question at the end of a sentence, if the word is close to one that is allowed."""
    allowed = list(allowed)
    close = get_close_matches(word, allowed, n=1)
    return f"  Did you mean {close[0]}?" if close else ""
