"""Packages that only some things need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fedcef.core.errors import ConfigError


def needed(module: str, what: str, extra: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ConfigError(f"For {what} {package} is needed; install it with: pip install 'fedcef[{extra}]'") from None
