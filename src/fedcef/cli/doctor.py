"""fedcef doctor: what is here, what is missing, and the command that fixes it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedcef.cli.terminal import console, tell
from fedcef.core.errors import ConfigError

MARKS = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "broken": ("✗", "red")}


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(doctor)


def doctor(
    what: Annotated[
        str | None, typer.Argument(metavar="[deployment]", help="What to look over; by default this installation.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    secrets: Annotated[
        Path | None, typer.Option("--secrets", help="deployment: the folder with certificates and keys.")
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="HOST:PORT", help="deployment: whose clock to compare with.")
    ] = None,
    folders: Annotated[
        list[Path] | None, typer.Option("--folder", help="deployment: where states or runs are kept; may be repeated.")
    ] = None,
) -> None:
    """Look over this installation, or the machine of a deployment, and say what to repair.

    Looks at versions, device, data, disk and optional packages; for a deployment at code, environment, secrets, clock
    and disk.  Leaves with 1 if there is something to repair.
    """
    from fedcef.cli.deployment_diagnosis import Places, examine_deployment
    from fedcef.cli.diagnosis import examine

    if what not in (None, "deployment"):
        raise ConfigError(f"fedcef doctor looks over this installation, or `deployment`; not {what!r}.")
    if what is None and (secrets or server or folders):
        raise ConfigError("--secrets, --server and --folder are for `fedcef doctor deployment`; leave them out.")
    findings = examine_deployment(Places(secrets, server, tuple(folders or ()))) if what else examine()
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        group = ""
        for finding in findings:
            if finding.group != group:
                group = finding.group
                console.print(f"\n{group}" if finding is not findings[0] else group, style="bold")
            mark, color = MARKS[finding.status]
            console.print(f"  [{color}]{mark}[/] ", end="")
            line, remedy = f"{finding.name:<16} {finding.found}", f"→  {finding.remedy}" if finding.remedy else ""
            fits = 4 + len(line) + 2 + len(remedy) <= console.width
            tell(f"{line}  {remedy}".rstrip() if fits else f"{line}\n    {remedy}")
        broken = sum(finding.status == "broken" for finding in findings)
        tell(f"\n{broken} thing(s) to repair: see the lines with ✗." if broken else "\nReady to run.")
    if any(finding.status == "broken" for finding in findings):
        sys.exit(1)
