"""The command line's own help, as part of the page api/command_line.md."""

import click
import typer
from mkdocs.structure.pages import Page

from fedcef.cli.main import app

PAGE = "api/command_line.md"


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    if page.file.src_uri != PAGE:
        return markdown
    return "\n\n".join([markdown, *sections(typer.main.get_command(app), "fedcef")])


def sections(command: click.Command, name: str) -> list[str]:
    """A section for each command, those of groups included."""
    if isinstance(command, click.Group):
        return [text for key, inner in command.commands.items() for text in sections(inner, f"{name} {key}")]
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    options = [row for parameter in command.params if (row := option(parameter, context))]
    table = ["\n".join(["| | |", "|---|---|", *options])] if options else []
    return [f"## `{name}`", command.help or "", f"```text\n{name} {usage}\n```", *table]


def option(parameter: click.Parameter, context: click.Context) -> str:
    """A row of the table: the names of an option or argument, and its help."""
    help_record = parameter.get_help_record(context)
    if parameter.name == "help" or help_record is None:
        return ""
    names, text = (part.replace("|", "\\|") for part in help_record)
    return f"| `{names}` | {text} |"
