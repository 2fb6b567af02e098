"""A problem of the user's own, by import path: `[data] name = "module:function"`.

The function is called with

    num_clients, seed     as the run's settings say
    clients               whose data is wanted: None = everyone's, (i,) = client i's alone, () = nobody's
    …                     the other keys of the section [data]

and returns a `Problem` with those clients, in that order.  So in a deployment a client reads its own data only, and the
server none.  The regulariser is the settings', not the problem's.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedcef.core.errors import ConfigError, FedcefError
from fedcef.problems.problem import Problem

Clients = tuple[int, ...] | None
"""Whose data is wanted: None is everyone's."""


def is_own(name: Any) -> bool:
    return isinstance(name, str) and ":" in name


def build_own(
    data: Mapping[str, Any], num_clients: int, seed: int, model: Mapping[str, Any], clients: Clients
) -> Problem:
    """Call the user's function and look at what it returns."""
    name = data["name"]
    if model:
        raise ConfigError(f"{name} builds its own model; leave the [model] section out.")
    function = _function(name)
    options = {key: value for key, value in data.items() if key != "name"}
    given = {"num_clients": num_clients, "seed": seed, "clients": clients, **options}
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise ConfigError(f"{name} cannot be called with {', '.join(given)}: {error}.") from None
    problem = function(**given)
    if not isinstance(problem, Problem):
        raise ConfigError(f"{name} returned {type(problem).__name__}; it must return a fedcef.Problem.")
    wanted = num_clients if clients is None else len(clients)
    if problem.num_clients not in (wanted, num_clients):
        raise ConfigError(
            f"{name} returned a problem with {problem.num_clients} clients for clients={clients}; it must be {wanted}."
        )
    return problem


def _function(name: str) -> Callable[..., Any]:
    module_name, _, function_name = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # a module beside the settings, as `python -m` would find it
    try:
        module = importlib.import_module(module_name)
    except FedcefError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"data.name is {name!r}, but {module_name} needs {error.name}, which is missing."
            ) from None
        raise ConfigError(
            f"data.name is {name!r}, but there is no module {module_name}; start where it lies, or install it."
        ) from None
    except (ValueError, TypeError):
        raise ConfigError(f"data.name is {name!r}; it must be like package.module:function.") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"data.name is {name!r}, but {module_name} has no function {function_name or '(no name)'}.")
    return function  # type: ignore[no-any-return]
