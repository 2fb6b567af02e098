"""fedcef doctor: what is here, what is missing, and the command that fixes it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from fedcef.cli.terminal import console, tell

MARKS = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "broken": ("✗", "red")}


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look over this installation, and say what to repair.

    Looks at versions, device, data, disk and optional packages; leaves with 1 if there is something to repair.
    """
    from fedcef.cli.diagnosis import examine

    findings = examine()
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
