"""The notebook in examples/ is the one of the documentation; it runs in an empty folder, and leaves what it says."""

import json
import re
import sys
from pathlib import Path

import pytest

from dpunion.ledger import Ledger
from dpunion.releases.release import Release
from running import PATIENCE

ROOT = Path(__file__).parents[2]
# Libraries of the kernel's own warn about their future; none of it is ours.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def tool():
    """tools/make_notebook.py, which `make notebook` runs."""
    for library in ("jupytext", "nbclient"):
        pytest.importorskip(library, reason="the extra docs is not installed")
    sys.path.insert(0, str(ROOT / "tools"))
    import make_notebook

    sys.path.remove(str(ROOT / "tools"))
    return make_notebook


@pytest.fixture(scope="module")
def kept(tool):
    """The notebook that is kept in examples/."""
    import nbformat

    return nbformat.read(tool.TARGET, as_version=4)


@pytest.fixture(scope="module")
def executed(tool, kept, tmp_path_factory):
    """The kept notebook after running it again, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("notebook")
    return tool.run_notebook(kept.copy(), folder, PATIENCE), folder


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def shown(output):
    return output.text if output.output_type == "stream" else output.data["text/plain"]


def test_the_notebook_in_examples_is_that_of_the_documentation(tool, kept):
    built = tool.build_notebook()
    assert outputs(built) == []
    assert built == tool.build_notebook()
    said = "run `make notebook` and commit the result"
    assert [(c.cell_type, c.id, c.source) for c in kept.cells] == [
        (c.cell_type, c.id, c.source) for c in built.cells
    ], said
    assert len(code_cells(kept)) >= 10


def test_the_notebook_in_examples_is_complete_and_says_nothing_about_the_machine(tool, kept):
    import nbformat

    nbformat.validate(kept)
    assert kept.metadata == tool.METADATA
    assert [cell.execution_count for cell in code_cells(kept)] == list(range(1, len(code_cells(kept)) + 1))
    assert all(cell.outputs and not cell.metadata for cell in code_cells(kept))
    text = tool.TARGET.read_text("utf-8")
    assert json.loads(text)["nbformat"] == 4
    assert not re.search(r"(?<![\w.])/(home|root|tmp|usr|var|work|opt|private)\b|[A-Z]:\\\\|Traceback|stderr", text)


def test_every_cell_runs_and_prints(executed):
    notebook, _ = executed
    assert all(cell.outputs for cell in code_cells(notebook))
    assert {output.output_type for output in outputs(notebook)} == {"stream", "execute_result"}
    assert {output.name for output in outputs(notebook) if output.output_type == "stream"} == {"stdout"}


def test_plans_and_releases_are_shown_as_cards(executed, kept):
    for notebook in (executed[0], kept):
        cards = [output.data["text/html"] for output in outputs(notebook) if output.output_type == "execute_result"]
        assert [re.search("<strong>(LookPlan|[\\d,]+ items released)", card) is not None for card in cards] == [
            True
        ] * 2


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


def test_the_notebook_prints_what_its_text_says(executed):
    notebook, _ = executed
    text = "\n".join(map(shown, outputs(notebook)))
    assert "(1, 1e-06)-differentially private" in text
    assert "length 3:" in text
    rows = [line.split() for line in text.splitlines() if line.endswith("%")]
    sizes = {row[0]: int(row[1]) for row in rows}
    assert len(sizes) == 4
    assert max(sizes, key=sizes.get) == "funnel"
