"""The source of Python's standard library as a corpus: it is on every machine that runs this.

Its parts are the packages and modules at its top.  What differs between installations of one version is left out: what
was configured when it was built, installed packages, and (unless they are asked for) the tests, which not every
distribution has.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from fedcef.core.errors import DataError
from fedcef.problems.text.corpus import Document, plain

_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", "lib-dynload", "sitecustomize.py", "usercustomize.py"}
_CONFIGURED = ("config-", "_sysconfigdata")
_TESTS = {"test", "tests", "idle_test"}


def read_stdlib(tests: bool = False, folder: Path | None = None) -> list[Document]:
    """Its .py files in the order of their names, with `tests` also Python's own tests, of which each file is a part."""
    root = folder or Path(sysconfig.get_paths()["stdlib"])
    documents = []
    for file in sorted(_files(root, tests), key=lambda file: file.relative_to(root).as_posix()):
        name = file.relative_to(root).as_posix()
        first, _, rest = name.partition("/")
        part = f"test/{rest.partition('/')[0]}" if first == "test" else first
        documents.append(Document(name, part, plain(file.read_bytes())))
    if not documents:
        raise DataError(f"The standard library in {root} has no source files; take a Python that comes with them.")
    return documents


def _files(root: Path, tests: bool) -> Iterator[Path]:
    for here, folders, files in os.walk(root):
        folders[:] = [name for name in folders if _taken(name, tests)]
        yield from (Path(here, name) for name in files if name.endswith(".py") and _taken(name, tests))


def _taken(name: str, tests: bool) -> bool:
    return name not in _LEFT_OUT and not name.startswith(_CONFIGURED) and (tests or name not in _TESTS)
