"""Sections of an experiment that say something to the simulator, and would say nothing to a deployment."""

from __future__ import annotations

from fedcef.core.errors import ConfigError
from fedcef.runs.settings import Settings

WHY = {"network": "has a network of its own", "stop": "plays all its rounds"}


def refuse_simulated_sections(settings: Settings) -> None:
    """Refuse to begin a deployment with a section of which it would take no notice."""
    for section, why in WHY.items():
        if getattr(settings, section) is not None:
            raise ConfigError(f"[{section}] is for simulations, and a deployment {why}; leave it out.")
