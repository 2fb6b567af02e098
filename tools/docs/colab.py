"""Notebooks that run where nothing is installed: their first cell, and the link that opens them in Colab.

Where the repository is, is known only where it is published (REPOSITORY_URL), so the notebooks here leave the address
empty: nobody else's code may be installed by them.  The copies on the site have it, and it is these that Colab opens,
from the branch that the site is served from.
"""

import os

CELL_ID = "install"
BRANCH = "gh-pages"
CELL = """\
# Where fedcef is missing, as on Colab, this installs it: from the checkout around it, or from its repository.
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = ""  # its address; the notebooks on fedcef's site have it
if not all(map(find_spec, ("fedcef", "sklearn", "matplotlib"))):
    checkout = Path("..").resolve()
    source = checkout.as_uri() if (checkout / "src/fedcef").is_dir() else REPOSITORY and f"git+{REPOSITORY}"
    if not source:
        raise RuntimeError("fedcef is not installed; set REPOSITORY to the address of its repository.")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"fedcef[data,plot] @ {source}"], check=True)"""


def with_address(source: str, repository: str | None) -> str:
    """The first cell with the repository's address."""
    return source.replace('REPOSITORY = ""', f'REPOSITORY = "{repository}"') if repository else source


def link(repository: str | None, name: str) -> str:
    """Where Colab opens a notebook of the site that is being published; "" if that is not known."""
    version = os.environ.get("DOCS_VERSION", "")
    if not (repository and version and repository.startswith("https://github.com/")):
        return ""
    project = repository.removeprefix("https://github.com/").removesuffix(".git").strip("/")
    return f"https://colab.research.google.com/github/{project}/blob/{BRANCH}/{version}/notebooks/{name}"
