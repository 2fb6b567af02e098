"""Small faults put into the central modules, one at a time: the tests must notice every one of them.

    python tools/mutants.py                      all modules; leaves with 1 if a mutant survives
    python tools/mutants.py --only ledger        those whose path contains the word
    python tools/mutants.py --list               the mutants, without a run
    python tools/mutants.py --table FILE         also write what came of every mutant, as a table

A mutant is one change of one place: a comparison turned, + for -, a condition negated, a number off by one, a keyword
argument left out, a statement that only calls something dropped, one of two like names for the other.  It is *killed*
when the tests chosen for its module fail, or do not end.  The tests run in a copy of the tree; the libraries are loaded
once, and every mutant gets a process forked from that.
"""

from __future__ import annotations

import argparse
import ast
import copy
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from mutated import EQUIVALENT, TESTS

ROOT = Path(__file__).resolve().parent.parent
COPIED = ["src", "tests", "tools", "docs", "examples"]
LONGEST = 180  # seconds for the tests of one mutant
QUICK = "not solution"  # the tests of thousands of rounds are left out

TURNED = [(ast.Eq, ast.NotEq), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
COMPARISONS = {a: b for one, two in TURNED for a, b in ((one, two), (two, one))}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr}
LIKE = [("shared", "own"), ("pending", "committed"), ("stamp", "base"), ("up", "down"), ("_local", "_server")]
LIKE += [("local_schedule", "server_schedule"), ("BATCHES", "AUGMENT"), ("COMPRESSION", "SERVER"), ("wire", "paper")]
LIKE += [("DROPOUT", "COHORT"), ("minimum", "maximum"), ("frame_nbytes", "frame_paper_nbytes")]
SWAPPED = {a: b for one, two in LIKE for a, b in ((one, two), (two, one))}
"""Names that a tired author may take for one another."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module."""

    module: str
    line: int
    before: str
    after: str
    source: str
    text: str
    """The line as it was."""

    @property
    def why_equivalent(self) -> str:
        """Why it changes nothing that can be seen; empty for nearly all."""
        gone = {(line, part) for line, part in EQUIVALENT if part in self.before and part not in self.after}
        return next((EQUIVALENT[line, part] for line, part in gone if line == self.text), "")

    def __str__(self) -> str:
        return f"{self.module}:{self.line}  {self.before}  →  {self.after}"


def mutants(module: str) -> Iterator[Mutant]:
    """All mutants of a module of `src/fedcef`."""
    text = (ROOT / "src" / "fedcef" / module).read_text("utf-8")
    tree, lines = ast.parse(text), ["", *map(str.strip, text.splitlines())]
    for parent in ast.walk(tree):
        parent._skip = getattr(parent, "_skip", False) or _says_nothing(parent)  # type: ignore[attr-defined]
        for child in ast.iter_child_nodes(parent):
            child._skip = parent._skip or child in _unseen(parent)  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if node._skip:  # type: ignore[attr-defined]
            continue
        for new in _changed(node):
            before, after = (ast.unparse(getattr(one, "test", one)) for one in (node, new))
            line: int = getattr(node, "lineno", 0)
            yield Mutant(module, line, before, after, with_node(tree, node, new), lines[line])


def _says_nothing(node: ast.AST) -> bool:
    """What is no behaviour that tests should pin: wordings, imports, types."""
    return isinstance(node, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom)


def _unseen(parent: ast.AST) -> list[ast.AST | None]:
    unseen: list[ast.AST | None] = [getattr(parent, "annotation", None), getattr(parent, "returns", None)]
    if isinstance(parent, ast.FunctionDef | ast.ClassDef):
        unseen += parent.decorator_list
    return unseen


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    new = copy.copy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in COMPARISONS:
        new.ops = [COMPARISONS[type(new.ops[0])](), *new.ops[1:]]
        yield new
    elif isinstance(new, ast.BinOp) and type(new.op) in OPERATORS:
        new.op = OPERATORS[type(new.op)]()
        yield new
        yield new.left
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        yield new
    elif isinstance(new, ast.If | ast.IfExp):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield new
    elif isinstance(new, ast.Constant) and type(new.value) in (int, float, bool):
        yield ast.Constant(not new.value if isinstance(new.value, bool) else new.value + 1)
    elif isinstance(new, ast.Expr) and isinstance(new.value, ast.Call):
        yield ast.Pass()
    elif isinstance(new, ast.Call):
        if not ast.unparse(new.func)[0].isupper() or "." in ast.unparse(new.func):  # a constructor would not run at all
            for at in range(len(new.keywords)):
                yield ast.Call(new.func, new.args, new.keywords[:at] + new.keywords[at + 1 :])
        if isinstance(new.func, ast.Attribute) and not new.args and not new.keywords and new.func.attr != "items":
            yield new.func.value  # x.sum() -> x
    elif isinstance(new, ast.Attribute) and new.attr in SWAPPED:
        new.attr = SWAPPED[new.attr]
        yield new
    elif isinstance(new, ast.Attribute) and new.attr == "share":
        yield ast.Constant(1.0)
    elif isinstance(new, ast.Name) and new.id in SWAPPED and isinstance(new.ctx, ast.Load):
        new.id = SWAPPED[new.id]
        yield new


def with_node(tree: ast.Module, node: ast.AST, new: ast.AST) -> str:
    """The module's source with one node in another's place."""

    class Put(ast.NodeTransformer):
        """Copies every node and list of nodes on its way, so that the tree itself stays as it was."""

        def visit(self, here: ast.AST) -> ast.AST:
            if here is node:
                return new
            here = copy.copy(here)
            for field, value in ast.iter_fields(here):
                setattr(here, field, list(value) if isinstance(value, list) else value)
            return self.generic_visit(here)

    return ast.unparse(ast.fix_missing_locations(Put().visit(tree)))


# trying them


def survives(mutant: Mutant | None, place: Path, tests: list[str]) -> tuple[bool, str]:
    """Whether the tests pass with a mutant in the copy of the tree, or with none; and what the first failure was."""
    if mutant:
        target = place / "src" / "fedcef" / mutant.module
        original = target.read_text("utf-8")
        target.write_text(mutant.source, "utf-8")
    report = place / "report.txt"
    report.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        _run_tests(place, tests, report)
    code = _wait(child)
    if mutant:
        target.write_text(original, "utf-8")
    return code == 0, "too long" if code is None else report.read_text("utf-8") if report.exists() else f"code {code}"


def _run_tests(place: Path, tests: list[str], report: Path) -> None:
    """In the forked process: the package of the copy, and the chosen tests until the first failure."""
    os.setsid()
    os.chdir(place)
    sys.path[:0] = [str(place / "src")]
    os.environ |= {"PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    sys.dont_write_bytecode = True
    import pytest

    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-k", QUICK, *tests])
    failed = [line for line in said.getvalue().splitlines() if line.startswith(("FAILED", "ERROR"))]
    report.write_text(failed[0].split(" - ")[0].split("::")[-1] if failed else said.getvalue()[-300:], "utf-8")
    os._exit(int(code))


def _wait(child: int) -> int | None:
    """The child's exit code; None if it had to be ended."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="modules whose path contains this")
    parser.add_argument("--list", action="store_true", help="show the mutants and do nothing")
    parser.add_argument("--table", type=Path, help="a file for a table of all mutants")
    options = parser.parse_args()
    todo = {module: list(mutants(module)) for module in TESTS if options.only in module}
    if options.list:
        print(*(one for found in todo.values() for one in found), sep="\n")
        return
    survivors: list[Mutant] = []
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        place = copied(Path(folder) / "tree")
        import_libraries()
        for module, found in todo.items():
            passes, why = survives(None, place, TESTS[module])
            if not passes:
                sys.exit(f"The tests for {module} fail without a mutant: {why}")
            began, killed = time.monotonic(), 0
            for one in found:
                reason = one.why_equivalent
                alive, by = (False, reason) if reason else survives(one, place, TESTS[module])
                verdict = "survived" if alive else "equivalent" if reason else "killed"
                rows.append(f"{verdict}\t{one}\t{'' if alive else by}")
                killed += not alive and not reason
                if alive:
                    survivors.append(one)
                    print("SURVIVED", one, flush=True)
            same = sum(bool(one.why_equivalent) for one in found)
            took = time.monotonic() - began
            print(f"{module}: {len(found)} mutants, {killed} killed, {same} equivalent, {took:.0f} s", flush=True)
    if options.table:
        options.table.write_text("\n".join(rows) + "\n", "utf-8")
    sys.exit(bool(survivors))


def copied(place: Path) -> Path:
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def import_libraries() -> None:
    """Load what takes long, once for all forked processes; neither the package itself nor plugins of pytest."""
    import pydantic  # noqa: F401
    import pytest  # noqa: F401
    import safetensors.torch  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import torch
    import typer.testing  # noqa: F401

    torch.set_num_threads(1)
    assert "fedcef" not in sys.modules


if __name__ == "__main__":
    main()
