"""A page for every registered method: its docstring, which holds the equations as coded, and its options."""

import inspect
import re
import sys
from dataclasses import MISSING, fields
from html import escape
from pathlib import Path
from textwrap import dedent

from anchors import HEADING, slug
from field_notes import all_notes
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm

FOLDER = "methods"
MODULES = {kind.__module__.rpartition(".")[2]: name for name, kind in ALGORITHMS.items()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages where the navigation has the entry `methods/`."""

    def fill(nav: list[dict[str, object]]) -> None:
        for entry in nav:
            ((title, target),) = entry.items()
            if target == f"{FOLDER}/":
                entry[title] = [{title_of(kind): f"{FOLDER}/{name}.md"} for name, kind in ALGORITHMS.items()]
            elif isinstance(target, list):
                fill(target)

    fill(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in ALGORITHMS:
        files.append(File.generated(config, f"{FOLDER}/{name}.md", content=page(name, Path(config.docs_dir))))
    return files


def page(name: str, docs: Path) -> str:
    kind = ALGORITHMS[name]
    source = Path(inspect.getfile(kind)).name
    body = module_text(kind).partition("\n")[2].strip()
    facts = [
        f'`algorithm.name = "{name}"`, class `{kind.__name__}`, [the code](../../src/fedcef/algorithms/{source})',
        f"[Status, limits and tests]({section(name, docs)})",
        "Compresses what clients send" if kind.compresses else "Has no place for a compressor",
        "Works with some of the clients" if kind.partial_participation else "Needs all clients in every round",
    ]
    return "\n\n".join(
        [
            f"# {title_of(kind)}",
            inspect.getdoc(kind) or "",
            "\n".join(f"* {fact}" for fact in facts),
            "## Equations",
            linked(body),
            "The letters are those of [the table of symbols](../algorithms.md#1-problem-and-notation).",
            *(["### Shared with other methods"] if shared_texts(kind) else []),
            *map(linked, shared_texts(kind)),
            "## Options",
            options(kind),
            "## Try it",
            f"```sh\n{command(name)}\n```\n",
        ]
    )


def command(name: str) -> str:
    """A run on digits that works for the method as it is."""
    whole = "" if ALGORITHMS[name].compresses else " --set compressor.name=identity"
    return f"fedcef run demo --set algorithm.name={name}{whole}"


def module_text(kind: type) -> str:
    return inspect.getdoc(sys.modules[kind.__module__]) or ""


def title_of(kind: type) -> str:
    """The method's name as people write it: the beginning of its module's docstring."""
    return re.split(r"[:,(]|\.$", module_text(kind).partition("\n")[0])[0].strip()


def shared_texts(kind: type) -> list[str]:
    """What the files that a method shares with others say; other methods' files are linked, not shown."""
    parents = [parent for parent in kind.__mro__[1:] if parent.__module__.startswith("fedcef.algorithms.")]
    return [module_text(parent) for parent in parents if parent.__module__.rpartition(".")[2] not in MODULES]


def linked(text: str) -> str:
    """A docstring as Markdown: files become links, letters get their indices, indented blocks are equations."""
    blocks = re.split(r"\n{2,}", text)
    return "\n\n".join(equations(block) if block.startswith("    ") else prose(block) for block in blocks)


def prose(block: str) -> str:
    def link(found: re.Match[str]) -> str:
        module = found[1]
        if module in MODULES:
            return f"[{title_of(ALGORITHMS[MODULES[module]])}]({MODULES[module]}.md)"
        return f"[`{module}.py`](../../src/fedcef/algorithms/{module}.py)"

    block = re.sub(r"\bdocs/(\w+)\.md", r"[\1](../\1.md)", with_indices(block))
    return re.sub(r"(?<![/\w])(\w+)\.py\b", link, block)


def equations(block: str) -> str:
    return f'<div class="equations"><pre>{with_indices(escape(dedent(block)))}</pre></div>'


def with_indices(text: str) -> str:
    """c_i, η_g, x_{k+1} and prox_{βh} with real indices; names in code, which have more letters, stay."""
    text = re.sub(r"_\{([^{}]*)\}", r"<sub>\1</sub>", text)
    return re.sub(r"(?<![\w`])(\w[\u0302-\u0304\u0307]?|[A-Za-zḡ]̄)_(\w{1,2})(?![\w`])", r"\1<sub>\2</sub>", text)


def section(name: str, docs: Path) -> str:
    """Where the longer pages treat the method."""
    title = slug(title_of(ALGORITHMS[name]))
    for file in ("algorithms.md", "methods.md"):
        for heading in HEADING.findall((docs / file).read_text("utf-8")):
            if re.sub(r"^\d+-", "", slug(heading)).split("-with-")[0].removesuffix("-reconstructed") == title:
                return f"../{file}#{slug(heading)}"
    raise ValueError(f"Neither docs/algorithms.md nor docs/methods.md has a section on {name}.")


def options(kind: type[Algorithm]) -> str:
    """A table of the method's own fields, then of those that all methods have."""
    notes = all_notes(kind)
    common = {field.name for field in fields(Algorithm)}
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for field in sorted(fields(kind), key=lambda field: field.name in common):
        default = "" if field.default is MISSING else f"`{field.default!r}`"
        rows.append(f"| `{field.name}` | {default} | {with_indices(notes.get(field.name, ''))} |")
    return "\n".join(rows)
