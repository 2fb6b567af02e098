"""Packages that only some things need, and the command that installs them here.

The command depends on how fedcef itself was installed (core/origin.py), and on which Python runs it: `pip` may be that
of another environment.  Whoever tells a user to install something asks here.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedcef.core.errors import ConfigError
from fedcef.core.origin import Origin, requirements


def needed(module: str, what: str, extra: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ConfigError(f"For {what} {package} is needed; install it with: {install_extra(extra)}") from None


def install_extra(extra: str, *options: str) -> str:
    """The command that installs this fedcef again with an extra, and with options of pip."""
    origin = Origin.here()
    if not origin.is_there:  # a wheel or a folder that was deleted since: what the extra asks for can be named itself
        return install(*options, *requirements(extra))
    return install(*options, *["-e"] * origin.editable, origin.requirement(extra))


def install(*words: str) -> str:
    """The command that installs packages, by their names, where this fedcef is installed."""
    return " ".join([_pip(), "install", *map(shlex.quote, words)])


def _pip() -> str:
    """How the pip of this environment is called: `pip` where that is it."""
    python = Path(sys.executable)
    found = shutil.which("pip")
    if found and Path(found).parent == python.parent:
        return "pip"
    name = str(python.relative_to(Path.cwd())) if python.is_relative_to(Path.cwd()) else str(python)
    return f"{shlex.quote(name)} -m pip" if find_spec("pip") else f"uv pip --python {shlex.quote(name)}"
