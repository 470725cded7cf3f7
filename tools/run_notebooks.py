"""Run the notebooks of the documentation: ``python tools/run_notebooks.py docs/notebooks/x.ipynb``.

Each runs in an empty folder, in a kernel of its own. Words of the stored outputs must agree with
what the cells show, numbers and pictures may differ from machine to machine; ``--write`` stores the
outputs, and writes the page of the notebook with its pictures beside it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from run_pages import words_of

#: Most seconds of one cell.
PATIENCE = 120


def read(path: Path) -> dict[str, Any]:
    """A notebook as it is stored."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of a fresh run; raises where a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as settings:
        made = nbformat.reads(json.dumps(notebook), as_version=4)
        client = NotebookClient(
            made, timeout=PATIENCE, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute(env={**os.environ, "IPYTHONDIR": settings})  # nothing of the user's
    return tidy(json.loads(nbformat.writes(made)))


def tidy(notebook: dict[str, Any]) -> dict[str, Any]:
    """Without what changes from run to run: times, versions, folders, bars that are gone."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        kept = {"cell_type": cell["cell_type"], "id": f"cell-{number}", "metadata": {}}
        if cell["cell_type"] == "code":
            outputs = [_tidy(output) for output in cell["outputs"]]
            kept |= {"execution_count": None, "outputs": [one for one in outputs if one]}
        cells.append(kept | {"source": cell["source"]})
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _tidy(output: dict[str, Any]) -> dict[str, Any] | None:
    if output["output_type"] == "display_data" and not text_of(
        output["data"].get("text/html", "x")
    ):
        return None  # a progress bar that was taken away
    kept = {**output, "metadata": {}} if "metadata" in output else dict(output)
    if "text/plain" in output.get("data", {}):
        text = text_of(output["data"]["text/plain"])
        kept["data"] = {**output["data"], "text/plain": without_folder(text).splitlines(True)}
    return kept | ({"execution_count": None} if "execution_count" in output else {})


def without_folder(text: str) -> str:
    """Files in a temporary folder are named as if they were beside the notebook."""
    return re.sub(re.escape(tempfile.gettempdir() + os.sep) + r"\w+" + re.escape(os.sep), "", text)


def text_of(source: str | list[str]) -> str:
    """Text, stored as one string or as lines."""
    return source if isinstance(source, str) else "".join(source)


def shown(notebook: dict[str, Any]) -> list[str]:
    """What must agree between machines: the words of every output, and that there is a picture."""
    found = []
    for output in outputs_of(notebook):
        if output["output_type"] == "stream":
            found.append(words_of(text_of(output["text"])))
            continue
        data = output["data"]
        found.append("a picture" if "image/png" in data else words_of(_best(data)))
    return found


def outputs_of(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """All outputs, in order."""
    return [o for cell in notebook["cells"] if cell["cell_type"] == "code" for o in cell["outputs"]]


def _best(data: dict[str, Any]) -> str:
    return text_of(data["text/html"] if "text/html" in data else data["text/plain"])


def page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """The notebook as a page of the documentation, and its pictures by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = text_of(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace(".ipynb)", ".md)"))
            continue
        # a semicolon keeps a notebook from printing the axes
        parts.append(f"```python\n{source.removesuffix(';')}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(_block(text_of(output["text"])))
            elif "image/png" in output["data"]:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode(text_of(output["data"]["image/png"]))
                label = "Figure drawn by the cell above"
                parts.append(f'<img class="drawn" alt="{label}" src="{file}">')
            elif "text/html" in output["data"]:
                card = re.sub(r"<style.*?</style>", "", _best(output["data"]), flags=re.DOTALL)
                card = " ".join(card.split())  # no empty line may end the block
                parts.append(f'<div class="card">{card}</div>')
            else:
                parts.append(_block(_best(output["data"])))
    parts.insert(1, f"[The notebook]({name}.ipynb), to run it yourself.")
    return "\n\n".join(parts) + "\n", pictures


def _block(text: str) -> str:
    """Printed text; long lines, which a notebook wraps, are broken."""
    lines = [line if len(line) <= 88 else textwrap.fill(line, 80) for line in text.splitlines()]
    return "\n".join(["```text", *lines, "```"])


def write(path: Path, notebook: dict[str, Any]) -> None:
    """Store a notebook, its page and its pictures."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    made, pictures = page(notebook, path.stem)
    path.with_suffix(".md").write_text(made, encoding="utf-8")
    for old in path.parent.glob(f"{path.stem}-[0-9]*.png"):
        old.unlink()
    for name, content in pictures.items():
        (path.parent / name).write_bytes(content)


def check(path: Path) -> None:
    """Run a notebook; raises where a cell fails or shows other words than are stored."""
    stored = read(path)
    found, expected = shown(execute(stored)), shown(stored)
    for new, old in zip(found, expected, strict=False):
        if new != old:
            raise SystemExit(f"{path.name}: a cell shows\n\n{new}\n\nand not, as stored,\n\n{old}")
    if len(found) != len(expected):
        raise SystemExit(f"{path.name}: {len(found)} outputs, {len(expected)} are stored")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if argument == "--write":
            continue
        if "--write" in sys.argv:
            write(Path(argument), execute(read(Path(argument))))
        else:
            check(Path(argument))
