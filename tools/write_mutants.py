"""Every write of a deployment, made wrong: not whole, or past the disk that was handed over.  The tests must notice.

    python tools/write_mutants.py                    all of deployment/ and secure/; leaves with 1 if one survives
    python tools/write_mutants.py --only client      those whose name contains the word
    python tools/write_mutants.py --list             the mutants, without a run

A kill in the middle of such a write is what the fault tests cannot see: they stop an injected disk at every step, and
these writes are not its.  It is `mutants.py` with two faults of its own; to the disk itself, and its steps, the faults
of `mutants.py` are done.
"""

from __future__ import annotations

import argparse
import ast
import copy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mutants import ROOT, Mutant, copied, import_libraries, survives, with_node
from mutants import mutants as small_faults

FOLDERS = ["deployment", "secure"]
DISK = "core/disk.py"
TESTS = ["tests/core/test_disk.py", "tests/deployment/test_writes.py"]
ANOTHER = ast.parse("__import__('fedcef.core.disk').core.disk.Disk()", mode="eval").body


def mutants(module: str) -> Iterator[Mutant]:
    """All mutants of a module of `src/fedcef`."""
    text = (ROOT / "src" / "fedcef" / module).read_text("utf-8")
    tree, lines = ast.parse(text), ["", *text.splitlines()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for new in changed(node):
                before, after = ast.unparse(node), ast.unparse(new)
                yield Mutant(module, node.lineno, before, after, with_node(tree, node, new), lines[node.lineno].strip())


def changed(call: ast.Call) -> Iterator[ast.AST]:
    """A write by its own name, in place of one that is whole; and by another disk, in place of the given one."""
    method = call.func
    if (
        isinstance(method, ast.Attribute)
        and is_disk(method.value)
        and method.attr in ("replace", "append", "add", "keep")
    ):
        if method.attr == "replace":
            path, data = call.args
            yield ast.Call(ast.Attribute(path, "write_bytes", ast.Load()), [data], [])
        yield ast.Call(ast.Attribute(ANOTHER, method.attr, ast.Load()), call.args, call.keywords)
    for at, argument in enumerate(call.args):
        if is_disk(argument):
            new = copy.copy(call)
            new.args = [*call.args[:at], ANOTHER, *call.args[at + 1 :]]
            yield new


def is_disk(node: ast.AST) -> bool:
    """`disk`, `self._disk`, `state.disk`, `disk or Disk()`."""
    if isinstance(node, ast.BoolOp):
        return is_disk(node.values[0])
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.lstrip("_") == "disk"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="modules whose name contains this")
    parser.add_argument("--list", action="store_true", help="show the mutants and do nothing")
    options = parser.parse_args()
    source = ROOT / "src" / "fedcef"
    modules = [str(file.relative_to(source)) for name in FOLDERS for file in sorted((source / name).glob("*.py"))]
    found = [one for module in modules if options.only in module for one in mutants(module)]
    found += small_faults(DISK) if options.only in DISK else []
    if options.list:
        print(*found, sep="\n")
        return
    alive = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = copied(Path(temporary) / "tree")
        import_libraries()
        passes, why = survives(None, place, TESTS)
        if not passes:
            sys.exit(f"The tests fail without a mutant: {why}")
        for one in found:
            survived, by = survives(one, place, TESTS)
            alive += survived
            print("SURVIVED" if survived else "killed  ", one, "" if survived else f"  by {by}", flush=True)
    print(f"{len(found)} mutants, {len(found) - alive} killed")
    sys.exit(bool(alive))


if __name__ == "__main__":
    main()
