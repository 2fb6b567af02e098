"""From names and options to objects: the border at which settings are checked.

A part (a method, a compressor, a regulariser, a schedule, a data set, …) is named by its name in a registry, or by the
import path of a class of the user's own, "package.module:Class".  Its options are the fields of its dataclass.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from inspect import isabstract
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from fedcef.core.errors import ConfigError, FedcefError

T = TypeVar("T")

Section = dict[str, Any]
"""A section of settings: the `name` of a part, and its options."""

_PLAIN = (bool, int, float, str)

BY_ENGINE = MappingProxyType({"by_engine": True})
"""The metadata of a field that whoever runs the part fills in: it is no option, and no settings show it."""


def make(section: str, registry: Mapping[str, type[T]], options: Mapping[str, Any], **given: Any) -> T:
    """The part that options["name"] names, with its other options checked field by field.

    `given` are fields that come from elsewhere and are no options of this section.

    >>> make("compressor", COMPRESSORS, {"name": "topk", "ratio": 0.01})
    TopK(ratio=0.01, values='native', block=256)
    """
    kind = find(f"{section}.name", options.get("name"), registry)
    own = [name for name in options_of(kind) if name not in given]
    for key in options:
        if key not in ["name", *own]:
            allowed = dict.fromkeys(["name", *own])
            raise ConfigError(unknown_key(f"{section}.{key}", [f"{section}.{name}" for name in allowed]))
    values = {key: value for key, value in options.items() if key in own}
    hints = get_type_hints(kind, include_extras=True)
    checked = {key: check(f"{section}.{key}", hints[key], value) for key, value in values.items()}
    return kind(**checked, **given)


def options_of(part: Any) -> list[str]:
    """The fields of a part, a dataclass or an object of it, that are options."""
    return [f.name for f in fields(part) if not f.metadata.get("by_engine")]


def find(key: str, name: Any, registry: Mapping[str, type[T]]) -> type[T]:
    """The class of this name, or at this import path; one from outside must be of the registry's kind."""
    if not is_path(name):
        return registry[choose(key, name, registry)]
    kind: Any = imported(key, name)
    wanted = kind_of(registry)
    fits = isinstance(kind, type) and issubclass(kind, wanted) and is_dataclass(kind)
    if not fits:
        raise ConfigError(f"{key} is {name!r}; it must be a dataclass that derives from {wanted.__name__}.")
    own: type[T] = kind
    return own


def is_path(name: Any) -> bool:
    """Whether a name is an import path, "package.module:thing"."""
    return isinstance(name, str) and ":" in name


def imported(key: str, path: str) -> Any:
    """What an import path names; modules of the current folder are found, as by `python -m`."""
    module_name, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except FedcefError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{key} is {path!r}, but {module_name} needs {error.name}, which is missing.") from None
        raise ConfigError(
            f"{key} is {path!r}, but there is no module {module_name}; start where it lies, or install it."
        ) from None
    except (ValueError, TypeError):
        raise ConfigError(f"{key} is {path!r}; it must be like package.module:name.") from None
    thing = getattr(module, name, None)
    if not callable(thing):
        raise ConfigError(f"{key} is {path!r}, but {module_name} has no function or class {name or '(no name)'}.")
    return thing


def kind_of(registry: Mapping[str, type[T]]) -> type[T]:
    """What all classes of a registry derive from: the last abstract class that they share."""
    first, *others = registry.values()
    shared = [kind for kind in first.__mro__ if all(issubclass(other, kind) for other in others)]
    return next((kind for kind in shared if isabstract(kind)), shared[0])


def validate(thing: Any) -> None:
    """Check the fields of an object that was made by hand as those of one from a file are checked.

    Numbers of other kinds, such as numpy's, become Python's, as from a file.
    """
    hints = get_type_hints(type(thing), include_extras=True)
    for f in fields(thing):
        value, hint = getattr(thing, f.name), hints[f.name]
        kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if kind in _PLAIN or get_origin(kind) is Literal:
            checked = check(f.name, hint, value)
            if type(checked) is not type(value) and not (kind is float and type(value) is int):
                object.__setattr__(thing, f.name, checked)
        elif isinstance(kind, type) and not isinstance(value, kind):
            raise ConfigError(f"{f.name} is {value!r}; it must be a {kind.__name__}.")
        elif isinstance(value, _PLAIN) or (get_origin(kind) in (dict, tuple) and value not in ({}, ())):
            with suppress(PydanticUserError):  # of tensors, parts and the like, which are the class's own matter
                check(f.name, hint, value)


def completed(registry: Mapping[str, type[Any]], options: Mapping[str, Any], *, without: Iterable[str] = ()) -> Section:
    """The options with the named part's defaults filled in, as a record of what was run."""
    name = options.get("name")
    if not (is_path(name) or name in registry):
        return dict(options)
    kind = find("name", name, registry)
    defaults = {f.name: f.default for f in fields(kind)}
    plain = {name: defaults[name] for name in options_of(kind) if isinstance(defaults[name], _PLAIN)}
    shown = {key: value for key, value in plain.items() if key not in set(without)}
    return {"name": name, **shown, **options}


def described(thing: object, registry: Mapping[str, type[Any]], *, without: Iterable[str] = ()) -> Section:
    """An object as a section of settings: its name in the registry, or its class's, and its plain fields."""
    name = next((name for name, kind in registry.items() if type(thing) is kind), type(thing).__name__)
    names = [name for name in options_of(thing) if name not in set(without)] if is_dataclass(thing) else []
    plain = {field: getattr(thing, field) for field in names}
    return {"name": name, **{key: value for key, value in plain.items() if isinstance(value, _PLAIN)}}


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
    """What to say of a setting that does not exist."""
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
