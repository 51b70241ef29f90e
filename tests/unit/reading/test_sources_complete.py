"""No file is left out in silence: what cannot be accessed, or is no file, ends the run."""

import glob
import gzip
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpunion.errors import BadSource, DamagedSource, SourceNotFound
from dpunion.reading.locate import locate
from dpunion.reading.storage import match_pattern
from opening import put, read_pairs
from running import run_python

CANARY = "CANARYvalue"
NOBODY = 65534
CSV = "u,v\na,x\n"


def read(source):
    return sorted(read_pairs(source))


# --- patterns -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pattern", ["*.csv", "**/*.csv", "[bc].csv"])
@pytest.mark.parametrize("odd", ["folder", "link", "pipe", "loop"])
def test_a_match_that_is_no_file_is_refused(tmp_path, pattern, odd):
    (tmp_path / "b.csv").write_text(CSV)
    assert read(tmp_path / pattern) == [("a", "x")]
    match odd:
        case "folder":
            (tmp_path / "c.csv").mkdir()
            (tmp_path / "c.csv" / "part-0").write_text(CSV)
        case "link":
            (tmp_path / "c.csv").symlink_to(tmp_path / "gone.csv")
        case "pipe":
            os.mkfifo(tmp_path / "c.csv")
        case _:
            (tmp_path / "c.csv").symlink_to(tmp_path / "c.csv")
    with pytest.raises(BadSource, match=r"instead of file '.*c\.csv'|c\.csv' cannot be accessed|broken link"):
        read(tmp_path / pattern)


@pytest.mark.parametrize("pattern", ["*/*.csv", "**/*.csv", "**"])
def test_a_link_to_nowhere_in_a_folders_place_is_refused(tmp_path, pattern):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.csv").write_text(CSV)
    assert read(tmp_path / pattern) == [("a", "x")]
    (tmp_path / f"u={CANARY}").symlink_to(tmp_path / "unmounted")
    with pytest.raises(BadSource, match=r"u=….*broken link") as caught:
        read(tmp_path / pattern)
    assert CANARY not in str(caught.value)


def test_folders_whose_content_matches_too_are_no_obstacle(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.csv").write_text(CSV)
    for pattern in ("**", "**/*", "*/**", "a/**/*"):
        assert read(tmp_path / pattern) == [("a", "x")]
    with pytest.raises(BadSource, match="There is a folder"):
        read(tmp_path / "*")
    with pytest.raises(SourceNotFound):
        read(tmp_path / "x" / "**")


def test_a_pattern_follows_links_once(tmp_path):
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "data" / "in" / "c.csv").write_text(CSV)
    (tmp_path / "data" / "in" / "back").symlink_to(tmp_path / "data")
    assert [file.path.name for file in locate([tmp_path / "**" / "*.csv"])] == ["c.csv"]


def test_the_suffix_of_a_match_is_refused_without_values_of_folders(tmp_path):
    (tmp_path / f"u={CANARY}").mkdir()
    (tmp_path / f"u={CANARY}" / "1.csvx").write_text(CSV)
    with pytest.raises(BadSource, match=r"suffix '\.csvx' of file '.*u=…/1\.csvx'") as caught:
        read(tmp_path / "*" / "1.csv*")
    assert CANARY not in str(caught.value)


NAMES = ["a", "b.csv", ".h", "d1", "d2"]
PARTS = ["*", "**", "a", "d?", "d[12]", "*.csv", ".*", "b.csv", "zz"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), max_size=8), st.data())
def test_patterns_match_what_pythons_match(paths, data):
    pattern = data.draw(
        st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).filter(lambda p: glob.has_magic(p[-1]))
    )
    with tempfile.TemporaryDirectory() as root:
        for path in paths:
            Path(root, *path[:-1]).mkdir(parents=True, exist_ok=True) if all(
                not Path(root, *path[:i]).is_file() for i in range(1, len(path))
            ) else None
            if Path(root, *path[:-1]).is_dir() and not Path(root, *path).exists():
                Path(root, *path).touch()
        wanted = {Path(match) for match in glob.glob(str(Path(root, *pattern)), recursive=True)}
        found = set(match_pattern(Path(root, *pattern)))
    assert found <= wanted
    left_out = {path for path in wanted - found if path != Path(root)}
    assert not left_out or pattern[-1] == "**" or pattern[-2:] == ["**", "*"]


# --- permissions --------------------------------------------------------------------------------------------
@pytest.fixture
def open_folder():
    """A folder that everybody may enter: pytest's own is for one user alone."""
    folder = Path(tempfile.mkdtemp(prefix="dpunion-test-"))
    folder.chmod(0o755)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


READ_AS_NOBODY = f"""
import os, sys
from dpunion.errors import DpunionError
from dpunion.reading import SourceRequest, ValueKind, open_source
if os.geteuid() == 0:
    os.setgroups([])
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
try:
    with open_source(SourceRequest(sys.argv[1], "u", ValueKind.ITEM, "v")) as batches:
        print(sum(len(batch.users) for batch in batches), "rows")
except DpunionError as error:
    print(error)
"""


def read_without_privilege(source):
    """Read in a process that permissions hold for, as they do not for root."""
    ran = run_python(READ_AS_NOBODY, source)
    assert not ran.stderr
    return ran.stdout


@pytest.mark.parametrize("pattern", ["", "**/*.parquet", "*/*.parquet", "*/0.parquet", "**"])
@pytest.mark.parametrize("mode", [0o000, *(pytest.param(mode, marks=pytest.mark.full) for mode in (0o444, 0o311))])
def test_a_folder_that_may_not_be_read_is_refused(open_folder, pattern, mode):
    for folder in ("a", f"u={CANARY}"):
        put(open_folder / folder / "0.parquet")
    assert read_without_privilege(open_folder / pattern if pattern != "" else open_folder / "a") != ""
    closed = open_folder / f"u={CANARY}"
    closed.chmod(mode)
    printed = read_without_privilege(open_folder / pattern)
    # A name that is known can be opened in a folder that may be entered but not listed: nothing is left out then.
    assert printed == "2 rows\n" if (mode, pattern) == (0o311, "*/0.parquet") else "cannot be accessed" in printed
    assert CANARY not in printed


@pytest.mark.parametrize("source", ["in/0.parquet", "in/*.parquet", "in"])
def test_a_path_into_a_folder_that_may_not_be_entered_is_refused(open_folder, source):
    put(open_folder / "shut" / "in" / "0.parquet")
    (open_folder / "shut").chmod(0)
    assert "cannot be accessed: Permission denied. Ask for" in read_without_privilege(open_folder / "shut" / source)


# --- directories --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("odd", ["link", "pipe"])
def test_what_is_no_file_in_a_directory_is_refused(tmp_path, odd):
    put(tmp_path / "a.parquet")
    if odd == "pipe":
        os.mkfifo(tmp_path / "b.parquet")
    else:
        (tmp_path / "b.parquet").symlink_to(tmp_path / "gone")
    with pytest.raises(BadSource, match=r"broken link|pipe or device"):
        read(tmp_path)


# --- empty compressed files ---------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["d.jsonl.gz", "d.jsonl.zst", "d.csv.gz", "d.tsv.zst"])
def test_a_compressed_file_without_any_byte_is_truncated(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(DamagedSource, match=r"There (are no bytes|is no header line) in file"):
        read(tmp_path / name)


def test_an_empty_file_that_was_compressed_is_empty(tmp_path):
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b""))
    assert read(tmp_path / "d.jsonl.gz") == []
    (tmp_path / "d.jsonl").touch()
    assert read(tmp_path / "d.jsonl") == []
