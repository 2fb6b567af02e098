"""fedcef doctor: what is here, what is missing, and the command that fixes it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fedcef.cli.hanging import hang
from fedcef.cli.terminal import console, tell
from fedcef.core.errors import ConfigError

if TYPE_CHECKING:
    from fedcef.cli.diagnosis import Finding

NAME = 16  # characters of a finding's name
MARKS = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "broken": ("✗", "red")}


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(doctor)


def doctor(
    what: Annotated[
        str | None, typer.Argument(metavar="[deployment]", help="What to check; by default this installation.")
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
    """Check this installation or a deployment's machine.

    Checks versions, device, data, disk and optional packages; for a deployment code, environment, secrets, clock and
    disk.  Exits with 1 if something must be repaired.
    """
    from fedcef.cli.deployment_diagnosis import Places, examine_deployment
    from fedcef.cli.diagnosis import examine

    if what not in (None, "deployment"):
        raise ConfigError(f"fedcef doctor checks this installation, or `deployment`; not {what!r}.")
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
            _show(finding)
        broken = sum(finding.status == "broken" for finding in findings)
        tell(f"\n{broken} thing(s) to repair: see the lines with ✗." if broken else "\nReady to run.")
    if any(finding.status == "broken" for finding in findings):
        sys.exit(1)


def _show(finding: Finding) -> None:
    """A finding in as many lines as it needs; a command stays in one, so that it can be copied."""
    mark, color = MARKS[finding.status]
    line, remedy = f"  {mark} {finding.name:<{NAME}} {finding.found}", f"→  {finding.remedy}" if finding.remedy else ""
    if len(f"{line}  {remedy}") <= console.width:
        lines = [f"{line}  {remedy}".rstrip()]
    else:
        lines = hang(line, 4 + NAME + 1, console.width)
        if remedy:
            lines += [f"    {remedy}"] if finding.is_command else hang(f"    {remedy}", 7, console.width)
    for number, text in enumerate(lines):
        shown = Text(text)
        if number == 0:
            shown.stylize(color, 2, 3)
        console.print(shown, soft_wrap=True)
