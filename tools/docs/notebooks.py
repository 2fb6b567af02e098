"""Notebooks as pages of the site: their text, code and stored outputs.  Nothing is executed here."""

import base64
from pathlib import Path

import nbformat
from colab import CELL_ID, link, with_address
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from repository import moved

FOLDER = "notebooks"
PICTURES = {"image/svg+xml": "svg", "image/png": "png"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted((Path(config.docs_dir).parent / FOLDER).glob("*.ipynb")):
        text, pictures = page(path, config.repo_url)
        files.append(File.generated(config, f"{FOLDER}/{path.stem}.md", content=text))
        files.append(File.generated(config, f"{FOLDER}/{path.name}", content=copy(path, config.repo_url)))
        for name, content in pictures.items():
            files.append(File.generated(config, f"{FOLDER}/{name}", content=content))
    return files


def copy(path: Path, repository: str | None) -> str:
    """The notebook as it can be fetched from the site: it knows where to install from."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.id == CELL_ID:
            cell.source = with_address(cell.source, repository)
    return nbformat.writes(notebook)


def page(path: Path, repository: str | None = None) -> tuple[str, dict[str, bytes]]:
    """The Markdown of a notebook, and its pictures by name."""
    notebook = nbformat.read(path, as_version=4)
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.id == CELL_ID:
            continue
        if cell.cell_type == "markdown":
            parts.append(moved(cell.source, f"{FOLDER}/{path.name}", f"{FOLDER}/{path.stem}.md"))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {"text/plain": output.get("text", "")})
            kind = next((kind for kind in PICTURES if kind in data), None)
            if kind:
                name = f"{path.stem}_{len(pictures) + 1}.{PICTURES[kind]}"
                pictures[name] = data[kind].encode() if kind == "image/svg+xml" else base64.b64decode(data[kind])
                parts.append(f"![what the cell above draws]({name}){{ .drawn }}")
            elif "text/html" in data:
                parts.append(f'<div class="output">{data["text/html"]}</div>')
            else:
                parts.append(f"``` {{.text .output}}\n{data['text/plain'].rstrip()}\n```")
    colab = link(repository, path.name)
    run_it = f"[Open in Colab]({colab}){{ .md-button }} or download [the notebook]({path.name})" if colab else ""
    if run_it:
        parts.insert(1, run_it)
    note = (
        f"[The notebook]({path.name}) installs what is missing in its first cell, from the checkout that it lies in. "
        "To run it there: `pip install jupyterlab`, then `jupyter lab notebooks`."
    )
    return "\n\n".join([*parts, "---", note, ""]), pictures
