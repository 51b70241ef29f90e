"""Run the notebook of the documentation, and write it with its outputs into examples/. `make notebook`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs" / "notebooks" / "walkthrough.nb.md"
TARGET = ROOT / "examples" / "walkthrough.ipynb"
# Nothing here depends on the machine that ran it.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def build_notebook() -> Any:
    """Return the notebook without outputs; two builds are equal."""
    notebook = jupytext.reads(SOURCE.read_text("utf-8"), fmt="md")
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    notebook.update(metadata=METADATA, nbformat=4, nbformat_minor=5)
    return nbformat.from_dict(notebook)


def run_notebook(notebook: Any, folder: Path, seconds: int = 600) -> Any:
    """Run all cells in a folder, keep what they print and show, and return the notebook."""
    client = nbclient.NotebookClient(
        notebook,
        timeout=seconds,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata = nbformat.from_dict(METADATA)
    return notebook


def main() -> None:
    """Write the notebook."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = run_notebook(build_notebook(), Path(folder))
    TARGET.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, TARGET)
    print(f"Wrote {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
