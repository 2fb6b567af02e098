"""Notebooks as pages of the site: their text, code and stored outputs.  Nothing is executed here."""

import base64
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from repository import moved

FOLDER = "notebooks"
PICTURES = {"image/svg+xml": "svg", "image/png": "png"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted((Path(config.docs_dir).parent / FOLDER).glob("*.ipynb")):
        text, pictures = page(path)
        files.append(File.generated(config, f"{FOLDER}/{path.stem}.md", content=text))
        files.append(File.generated(config, f"{FOLDER}/{path.name}", abs_src_path=str(path)))
        for name, content in pictures.items():
            files.append(File.generated(config, f"{FOLDER}/{name}", content=content))
    return files


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """The Markdown of a notebook, and its pictures by name."""
    notebook = nbformat.read(path, as_version=4)
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook.cells:
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
    note = f"[The notebook]({path.name}).  To run it: `pip install 'fedcef[all]' jupyterlab`, then `jupyter lab`.\n"
    return "\n\n".join([*parts, "---", note]), pictures
