"""The notebook runs from beginning to end in an empty folder, and leaves what it says."""

from pathlib import Path

import pytest

from dpunion.ledger import Ledger
from dpunion.releases.release import Release
from running import PATIENCE

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "walkthrough.nb.md"
# Libraries of the kernel's own warn about their future; none of it is ours.
pytestmark = pytest.mark.filterwarnings("default")


def read():
    jupytext = pytest.importorskip("jupytext", reason="the extra docs is not installed")
    return jupytext.reads(NOTEBOOK.read_text("utf-8"), fmt="md")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after running, and the folder it ran in."""
    nbclient = pytest.importorskip("nbclient", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("notebook")
    notebook = read()
    client = nbclient.NotebookClient(
        notebook, timeout=PATIENCE, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute()
    return notebook, folder


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_it_is_kept_without_outputs():
    assert outputs(read()) == []
    assert len([cell for cell in read().cells if cell.cell_type == "code"]) >= 10


def test_every_cell_runs_and_prints(executed):
    notebook, _ = executed
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in cells)
    assert {output.output_type for output in outputs(notebook)} == {"stream"}
    assert {output.name for output in outputs(notebook)} == {"stdout"}


def test_the_release_is_private_and_written(executed):
    _, folder = executed
    release = Release.from_json((folder / "vocabulary.json").read_text("utf-8"))
    assert release.guaranteed
    assert len(release) > 500
    assert "budget.db#2:" in release.statement
    assert {"budget.db", "new.parquet", "vocabulary.html", "vocabulary.parquet"} <= {
        one.name for one in folder.iterdir()
    }


def test_both_releases_are_in_the_ledger(executed):
    _, folder = executed
    ledger = Ledger.open(folder / "budget.db")
    assert ledger.verify().good
    assert len(ledger.overview().entries) == 2
    ledger.close()


def test_what_it_prints_is_what_it_says(executed):
    notebook, _ = executed
    text = "".join(output.text for output in outputs(notebook))
    assert "(1, 1e-06)-differentially private" in text
    assert "length 3:" in text
    rows = [line.split() for line in text.splitlines() if line.endswith("%")]
    sizes = {row[0]: int(row[1]) for row in rows}
    assert len(sizes) == 4
    assert max(sizes, key=sizes.get) == "funnel"
