"""What docs/design.md says of the tree, held to: layers, where keys come from, docstrings, sizes."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

import fedcef

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "fedcef"
FILES = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in FILES.items()}

sys.path.insert(0, str(ROOT / "tools"))
import_graph = importlib.import_module("import_graph")

TRUNK = [
    {"core"},
    {"wire"},
    {"compressors", "regularizers", "kernels"},
    {"optimizers"},
    {"algorithms"},
    {"privacy", "problems"},
    {"oracles", "secure"},
    {"simulation"},
    {"runs"},
]
"""From the lowest layer up; a package imports only from layers below its own."""
ENGINES = [{"deployment"}, {"flower"}]
FACES = {"clients", "python", "report", "watch", "trackers", "export", "theory", "estimators"}
"""Packages for people; they may import one another, without a circle, and none of them the engines."""


def below(package):
    """What a package may import."""
    for branch in (TRUNK, TRUNK + ENGINES):
        for level, layer in enumerate(branch):
            if package in layer:
                return set().union(*branch[:level])
    trunk = set().union(*TRUNK)
    if package in FACES:
        return trunk | FACES - {package}
    assert package == "cli", f"{package} is in no layer; say here in which"
    return trunk | FACES | set().union(*ENGINES)


def test_packages_import_without_a_circle():
    assert not import_graph.cycle(import_graph.packages())


def test_the_design_page_draws_this_graph():
    """If not: python tools/import_graph.py --write."""
    assert import_graph.mermaid(import_graph.packages()) in (ROOT / "docs" / "design.md").read_text("utf-8")


def test_imports_point_down():
    wrong = [
        f"{where} imports {imported}"
        for where, importer, imported in import_graph.imports()
        if import_graph.FRONT not in (importer, imported) and imported not in below(importer)
    ]
    assert not wrong


def test_only_the_front_imports_by_the_name_of_a_module():
    """`import_module("fedcef.…")` would be an import that the graph does not show; so would a relative one."""
    hidden = [
        f"{name}:{node.lineno}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and node.level)
        or (
            name != "__init__.py"
            and isinstance(node, ast.Call)
            and _name(node.func) in ("import_module", "__import__")
            and "'fedcef" in ast.dump(node)
        )
    ]
    assert not hidden


def test_a_package_uses_the_front_only_for_its_version():
    """Otherwise a lower layer could reach a higher one through `fedcef.run`."""
    wrong = [
        f"{name}:{node.lineno} {node.attr}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "fedcef"
        and node.attr != "__version__"
    ]
    wrong += [
        f"{where} imports a name from the front"
        for where, importer, imported in import_graph.imports()
        if imported == import_graph.FRONT and not _imports_only_the_version(where)
    ]
    assert not wrong


def _imports_only_the_version(where):
    name, _, line = where.rpartition(":")
    nodes = [node for node in ast.walk(TREES[name]) if getattr(node, "lineno", 0) == int(line)]
    return any(
        isinstance(node, ast.Import)
        or (isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} == {"__version__"})
        for node in nodes
    )


def test_keys_are_made_in_core_alone():
    """Elsewhere a key is taken from the round's facts or from `data_key`, by its purpose."""
    wrong = [
        f"{name}:{node.lineno} {_name(node.func)}"
        for name, tree in TREES.items()
        if not name.startswith("core/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _makes_a_key(node)
    ]
    assert not wrong


def _makes_a_key(call):
    """`fold(…)`, `rng.fold(…)` or `key.fold(Purpose.…)`, and likewise for the functions that begin with a seed."""
    if _name(call.func) not in ("fold", "round_key", "seed_key"):
        return False
    plain = isinstance(call.func, ast.Name) or _name(call.func.value) == "rng"
    return plain or any("Purpose" in ast.dump(argument) for argument in call.args)


def test_methods_know_neither_problems_nor_engines():
    wrong = [
        f"{where} imports {imported}"
        for where, importer, imported in import_graph.imports()
        if importer == "algorithms" and imported in ("problems", "oracles", "simulation", "runs", "deployment")
    ]
    assert not wrong


@pytest.mark.parametrize(("package", "only"), [("flwr", "flower/"), ("triton", "kernels/"), ("typer", "cli/")])
def test_a_library_is_imported_in_one_place(package, only):
    found = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if package
        in {
            module.split(".")[0]
            for module in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
    }
    assert found
    assert all(name.startswith(only) for name in found)


def test_files_are_short():
    long = {name: n for name, path in FILES.items() if (n := len(path.read_text("utf-8").splitlines())) > 300}
    assert not long


def test_public_names_import():
    for name in fedcef.__all__:
        assert getattr(fedcef, name) is not None


# docstrings


def test_everything_public_has_a_docstring():
    """Modules, classes, functions and methods; a method that overrides a documented one needs no second docstring."""
    assert not undocumented()


def undocumented():
    """Where a docstring is missing: `file:line name`."""
    classes = {node.name: node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = [name for name, tree in TREES.items() if tree.body and ast.get_docstring(tree) is None]
    for name, tree in TREES.items():
        for node in tree.body:
            if not _public(node):
                continue
            if ast.get_docstring(node) is None:
                found.append(f"{name}:{node.lineno} {node.name}")
            if isinstance(node, ast.ClassDef):
                found += [
                    f"{name}:{method.lineno} {node.name}.{method.name}"
                    for method in node.body
                    if _public(method)
                    and ast.get_docstring(method) is None
                    and not _inherits_a_docstring(node, method.name, classes)
                ]
    return found


def _public(node):
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
        return False
    marks = {_name(mark.func if isinstance(mark, ast.Call) else mark) for mark in node.decorator_list}
    return not marks & {"overload", "setter", "jit"}


def _inherits_a_docstring(node, method, classes):
    """Whether a base class documents the method, or has it from a library, which does."""
    for base in node.bases:
        known = classes.get(_name(base))
        if known is None:
            if method in LIBRARIES.get(_name(base), ()):
                return True
            continue
        for theirs in known.body:
            if getattr(theirs, "name", "") == method and ast.get_docstring(theirs) is not None:
                return True
        if _inherits_a_docstring(known, method, classes):
            return True
    return False


LIBRARIES = {
    "Module": ("forward",),
    "Function": ("forward", "backward", "setup_context", "vmap"),
    "BaseEstimator": ("fit", "predict", "score", "get_params", "set_params"),
    "RegressorMixin": ("fit", "predict", "score"),
    "ClassifierMixin": ("fit", "predict", "score"),
    "BaseHTTPRequestHandler": ("do_GET", "log_message"),
    "ProgressColumn": ("render",),
}


def _name(node):
    """`a.b.c` -> c."""
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
