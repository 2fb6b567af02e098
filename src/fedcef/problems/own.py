"""Parts of a problem of the user's own, by import path: `[data] name = "module:function"` is the whole problem.

The function is called with

    num_clients, seed     as the run's settings say
    clients               whose data is wanted: None = everyone's, (i,) = client i's alone, () = nobody's
    …                     the other keys of the section [data]

and returns a `Problem` with those clients, in that order.  So in a deployment a client reads its own data only, and the
server none.  The regulariser is the settings', not the problem's.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from fedcef.core.errors import ConfigError
from fedcef.core.parts import imported
from fedcef.problems.problem import Problem

Clients = tuple[int, ...] | None
"""Whose data is wanted: None is everyone's."""


def build_own(
    data: Mapping[str, Any], num_clients: int, seed: int, model: Mapping[str, Any], clients: Clients
) -> Problem:
    """Call the user's function and look at what it returns."""
    name = data["name"]
    if model:
        raise ConfigError(f"{name} builds its own model; leave the [model] section out.")
    options = {key: value for key, value in data.items() if key != "name"}
    given = {"num_clients": num_clients, "seed": seed, "clients": clients, **options}
    problem = call("data.name", name, **given)
    if not isinstance(problem, Problem):
        raise ConfigError(f"{name} returned {type(problem).__name__}; it must return a fedcef.Problem.")
    wanted = num_clients if clients is None else len(clients)
    if problem.num_clients not in (wanted, num_clients):
        raise ConfigError(
            f"{name} returned a problem with {problem.num_clients} clients for clients={clients}; it must be {wanted}."
        )
    return problem


def call(key: str, path: str, *given: Any, **named: Any) -> Any:
    """What the user's function at an import path returns; a call that does not fit it is told in a sentence."""
    function = imported(key, path)
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError as error:
        raise ConfigError(f"{path} cannot be called with {', '.join(named) or 'no options'}: {error}.") from None
    return function(*given, **named)
