"""No output takes the place of what is read or kept, by no name, and nothing is charged for the attempt."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.errors import CannotWrite
from dpunion.ledger import Ledger
from dpunion.samples import debian_depends
from running import assert_error
from running import run_cli as run

BUDGET = ("-e", "1", "-d", "1e-6")
COLUMNS = ("-u", "user", "-i", "item")
TEXTS = ("-u", "user", "-t", "item")
REFUSED = "or the next run would read it as one"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a source under several names, a folder of Parquet files and a ledger."""
    monkeypatch.chdir(tmp_path)
    rows = [f"person{i},{item}" for i in range(300) for item in ("apple", "plum")]
    Path("s.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    Path("hard.csv").hardlink_to("s.csv")
    Path("soft.csv").symlink_to("s.csv")
    Path("parts/day=1").mkdir(parents=True)
    table = pa.table({"user": [f"u{i}" for i in range(300)], "item": ["apple"] * 300})
    pq.write_table(table, "parts/day=1/a.parquet")
    pq.write_table(table, "outside.parquet")
    Path("parts/day=1/b.parquet").symlink_to(Path("outside.parquet").absolute())
    Path("door").symlink_to("parts")
    Ledger.open("ledger.json", create=True).create_dataset("d", 10.0, 1e-3)
    return tmp_path


def contents():
    """Every file's bytes, by its path."""
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", [("release", COLUMNS), ("ngrams", TEXTS)], ids=["release", "ngrams"])
@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("s.csv", "s.csv"), ("s.csv", "./parts/../s.csv"), ("s.csv", "hard.csv"), ("s.csv", "soft.csv"),
        ("soft.csv", "s.csv"), ("parts", "parts/day=1/a.parquet"), ("parts", "parts/new.parquet"),
        ("parts", "door/new.csv"), ("door", "parts/day=2.csv"), ("parts", "outside.parquet"), (".", "new.csv"),
        ("*.csv", "s.csv"), ("*.csv", "new.csv"), ("door/*/*.parquet", "parts/day=1/new.parquet"),
        ("parts/**/*.parquet", "parts/new.parquet"), ("parts/**/*.parquet", "outside.parquet"),
    ],
)  # fmt: skip
def test_an_output_never_is_a_source(place, command, source, out):
    before = contents()
    name, columns = command
    ledger = ("--ledger", "ledger.json", "--dataset", "d")
    assert_error(
        run(name, source, *columns, *BUDGET, *ledger, "--out", "fine.txt", "--out", out, "--force"), 4, REFUSED
    )
    assert contents() == before  # the ledger among them: nothing was charged


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("s.csv", "t.csv"), ("parts", "parts/_made.csv"), ("parts", "parts.csv"), ("[s].csv", "t.csv"),
        ("s.cs?", "t.csv"),
    ],
)  # fmt: skip
def test_other_outputs_are_written(place, source, out):
    run("release", source, *COLUMNS, *BUDGET, "--out", out, code=0)


def test_an_output_is_not_the_known_list_the_configuration_or_the_ledger(place):
    Path("known.txt").write_text("plum\n")
    Path("run.json").write_text('user = "user"\nitem = "item"\nepsilon = 1\ndelta = 1e-6\nknown = "known.txt"\n')
    before = contents()
    ledger = ("--ledger", "ledger.json", "--dataset", "d")
    for out in ("known.txt", "run.json", "ledger.json"):
        result = run("release", "s.csv", "--config", "run.json", *ledger, "--out", out, "--force")
        assert (result.exit_code, REFUSED in result.stderr) == (4, True), result.output
    assert contents() == before


def test_a_database_is_not_overwritten(place):
    shutil.copy("ledger.json", "data.csv")
    before = contents()
    for source in ("sqlite:///data.csv", f"sqlite:///{place}/data.csv"):
        result = run("release", source, "--query", "select 1", *COLUMNS, *BUDGET, "--out", "data.csv", "--force")
        assert (result.exit_code, REFUSED in result.stderr) == (4, True), result.output
    assert contents() == before


def test_the_library_overwrites_no_source_either(place):
    options = {"user": "user", "epsilon": 1.0, "delta": 1e-6, "run": dpunion.Run(overwrite=True)}
    before = contents()
    with pytest.raises(CannotWrite, match=REFUSED):
        dpunion.release(["s.csv"], item="item", out="hard.csv", **options)
    with pytest.raises(CannotWrite, match=REFUSED):
        dpunion.release("s.csv", item="item", known=Path("soft.csv"), out=Path("hard.csv"), **options)
    with pytest.raises(CannotWrite, match=REFUSED):
        dpunion.release_ngrams(Path("s.csv"), text="item", out="s.csv", **options)
    assert contents() == before
    frame = pa.table({"user": ["u"], "item": ["s.csv"]})
    dpunion.release(frame, item="item", known=["s.csv"], out="s.csv", **options)  # an item, no path


def test_a_page_is_not_its_release(place):
    assert run("release", "s.csv", *COLUMNS, *BUDGET, "--out", "r.json").exit_code == 0
    Path("r.json").rename("r.html")
    before = contents()
    for arguments in (("r.html",), ("r.html", "--out", "r.html")):
        result = run("report", *arguments, "--force")
        assert (result.exit_code, REFUSED in result.stderr) == (4, True), result.output
    assert contents() == before


def test_a_study_does_not_replace_its_data(place):
    shutil.copy("outside.parquet", "study.parquet")
    Path("page.html").hardlink_to("s.csv")
    folder = Path("results")
    folder.mkdir()
    shutil.copy("outside.parquet", folder / "trials.parquet")
    before = contents()
    for arguments in (
        ("compare", "study.parquet", *COLUMNS, *BUDGET, "--out", "study.parquet"),
        ("compare", "s.csv", *COLUMNS, *BUDGET, "--html", "page.html"),
        ("reproduce", "--quick", "--texts", "results/trials.parquet", "--out", "results"),
    ):
        result = run("lab", *arguments, "--force")
        assert (result.exit_code, REFUSED in result.stderr) == (4, True), result.output
    assert contents() == before


def test_the_demo_overwrites_with_force_only(place):
    Path("mine.csv").write_text("precious\n")
    run("demo", "--out", "mine.csv", code=4)
    assert Path("mine.csv").read_text() == "precious\n"
    assert run("demo", "--out", "mine.csv", "--force").exit_code == 0
    Path("sample.parquet").symlink_to(debian_depends())
    result = run("demo", "--out", "sample.parquet", "--force")
    assert (result.exit_code, REFUSED in result.stderr) == (4, True), result.output
