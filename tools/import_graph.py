"""The packages of `fedcef` and who imports whom, by their sources; lazy and type-checking imports count like others.

    python tools/import_graph.py              the graph in Mermaid's language, for docs/design.md
    python tools/import_graph.py --write      put it there
    python tools/import_graph.py --check      leave with 1 if there is a cycle, or if docs/design.md shows another graph
    python tools/import_graph.py --why A B    the imports by which package A needs package B

Drawn is what cannot be left out: an arrow from a to c is not drawn if there are arrows from a to b and from b to c.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fedcef"
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "```mermaid\nflowchart LR\n", "\n```"
FRONT = "fedcef"  # the package itself, whose public names are imported when they are used

Graph = dict[str, set[str]]


def imports(source: Path = SOURCE) -> Iterator[tuple[str, str, str]]:
    """Every import within the package: by which file and line, from which package, of which package."""
    for path in sorted(source.rglob("*.py")):
        importer = package_of(path.relative_to(source).with_suffix("").parts, source)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for module in _imported(node, source):
                imported = package_of(module.split(".")[1:], source)
                if imported != importer:
                    yield f"{path.relative_to(source)}:{getattr(node, 'lineno', 0)}", importer, imported


def package_of(parts: tuple[str, ...] | list[str], source: Path = SOURCE) -> str:
    """The package or top-level module that a module belongs to: its first part."""
    if not parts or parts[0] in ("__init__", "__main__"):
        return FRONT
    known = (source / parts[0]).is_dir() or (source / f"{parts[0]}.py").is_file()
    return parts[0] if known else FRONT


def _imported(node: ast.AST, source: Path) -> Iterator[str]:
    """The modules of this package that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "fedcef")
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "fedcef":
        assert node.module is not None
        # `from fedcef import compressors` imports a package, `from fedcef import run` a name of the front
        yield from (f"{node.module}.{alias.name}" if node.module == "fedcef" else node.module for alias in node.names)


def packages(source: Path = SOURCE) -> Graph:
    """For every package those that it imports.  The front is left out: it holds the others' names."""
    graph: Graph = {
        path.stem: set()
        for path in source.iterdir()
        if (path.is_dir() and any(path.glob("*.py"))) or (path.suffix == ".py" and not path.name.startswith("__"))
    }
    for _, importer, imported in imports(source):
        if FRONT not in (importer, imported):
            graph[importer].add(imported)
    return graph


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """The packages of a cycle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def reduced(graph: Mapping[str, set[str]]) -> Graph:
    """Without the arrows that follow from others."""

    def reach(start: str) -> set[str]:
        return {start}.union(*(reach(name) for name in graph[start]))

    return {
        name: {one for one in needed if not any(one in reach(other) for other in needed - {one})}
        for name, needed in graph.items()
    }


def mermaid(graph: Mapping[str, set[str]]) -> str:
    """The graph as a fenced Mermaid diagram, arrows from what is imported to who imports it."""
    order = list(TopologicalSorter(graph).static_order())
    rank = {name: (max((rank_of(one, graph) for one in graph[name]), default=-1) + 1, name) for name in order}
    lines = []
    for name in sorted(rank, key=lambda name: rank[name]):
        lines += [f"  {one} --> {name}" for one in sorted(reduced(graph)[name], key=lambda one: rank[one])]
    return BEGIN + "\n".join(lines) + END


def rank_of(name: str, graph: Mapping[str, set[str]]) -> int:
    """The length of the longest way down from a package."""
    return max((rank_of(one, graph) + 1 for one in graph[name]), default=0)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the graph into docs/design.md")
    parser.add_argument("--check", action="store_true", help="compare it with the one in docs/design.md")
    parser.add_argument("--why", nargs=2, metavar="PACKAGE", help="list the imports of the second by the first")
    options = parser.parse_args()
    if options.why:
        print(*(where for where, *pair in imports() if pair == options.why), sep="\n")
        return
    graph = packages()
    if found := cycle(graph):
        sys.exit(f"The packages import each other in a circle: {' <- '.join(found)}.")
    drawn, page = mermaid(graph), PAGE.read_text("utf-8")
    if not options.write and not options.check:
        print(drawn)
        return
    if BEGIN not in page:
        sys.exit(f"{PAGE.name} has no diagram for the graph; put this into it:\n{drawn}")
    before, _, rest = page.partition(BEGIN)
    new = before + drawn + rest.partition(END)[2]
    if options.write:
        PAGE.write_text(new, "utf-8")
    elif new != page:
        sys.exit(f"{PAGE.name} shows another graph; run: python tools/import_graph.py --write")


if __name__ == "__main__":
    main()
