"""Queries over Parquet files: the rows of these files and nothing else, and nothing is written."""

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.errors import BadParameter, BadSource, DamagedSource, SourceNotFound, UnknownColumn
from dpunion.reading.drivers import Failure, explain_failure
from opening import check_source, read_pairs

ROWS = pa.table({"u": ["a", "b", "c"], "v": ["x", "y", "z"], "n": [1, 2, 3], "k": ["01", "1", None]})
CANARY = "CANARYvalue"


@pytest.fixture
def files(tmp_path):
    """A folder with partitions, a plain file, and something that must not be read."""
    ds.write_dataset(ROWS, tmp_path / "folder", format="parquet", partitioning=["k"], partitioning_flavor="hive")
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    pq.write_table(pa.table({"u": ["q"], "v": [CANARY]}), tmp_path / "secret.parquet")
    return tmp_path


def pairs(source, query, value="v"):
    return sorted(read_pairs(source, value=value, query=query))


def test_a_query_selects_from_the_named_files(files):
    assert pairs(files / "rows.parquet", "select u, upper(v) as v from source where n > 1") == [("b", "Y"), ("c", "Z")]
    assert pairs(str(files / "rows.*"), "select * from source;") == [("a", "x"), ("b", "y"), ("c", "z")]
    both = [str(files / "rows.parquet"), files / "rows.parquet"]
    assert pairs(both, "select u, v from source where u = 'a'") == [("a", "x"), ("a", "x")]


def test_partitions_are_text(files):
    assert pairs(files / "folder", "select u, k from source", "k") == [("a", "01"), ("b", "1")]
    assert pairs(files / "folder", "select u, v from source where k is null") == [("c", "z")]


@pytest.mark.parametrize(
    "query",
    [
        "select u, v from '{}/secret.parquet'", "select u, v from read_parquet('{}/secret.parquet')",
        "select u, v from read_csv('{}/secret.parquet')", "select filename as u, content as v from read_text('{}/*')",
        "select 'x' as u, file as v from glob('{}/*')", "copy (select u, v from source) to '{}/out.csv'",
        "select u, v from source; copy source to '{}/out.csv'", "attach '{}/out.db'", "install httpfs", "load httpfs",
        "set enable_external_access = true", "create table t as from source", "insert into source values ('a', 'b')",
        "select getenv('HOME') as u, 'x' as v",
    ],
)  # fmt: skip
def test_nothing_else_is_read_or_written(files, query):
    before = sorted(files.rglob("*"))
    with pytest.raises(BadSource) as caught:
        pairs(files / "rows.parquet", query.format(files))
    assert CANARY not in str(caught.value)
    assert sorted(files.rglob("*")) == before


def test_the_remedy_names_the_table(files):
    for query in (f"select u, v from '{files}/secret.parquet'", "select u, v from rows"):
        with pytest.raises(BadSource, match="'source'"):
            pairs(files / "rows.parquet", query)
    with pytest.raises(UnknownColumn, match="'w'"):
        pairs(files / "rows.parquet", "select u, v from source", "w")


@pytest.mark.filterwarnings("ignore::dpunion.reading.QueryMixesPeople")
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select nope from source", "names the column 'nope', which does not exist"),
        ("select u, v from source where nope > 1", "names the column 'nope', which does not exist"),
        ("select source.nope, v from source", "names the column 'nope', which does not exist"),
        ("select u, v from sorce", "names the table 'sorce', which does not exist"),
        ("select lowr(u) as u, v from source", "names the function 'lowr', which does not exist"),
        ("selct u, v from source", "cannot be understood at 'selct'"),
        ("select u, v from source group by u", r"cannot be understood \(BinderException"),
    ],
)
def test_a_mistake_in_a_query_is_named(files, query, words):
    with pytest.raises(BadSource, match=f"^The query over files (?:{words})"):
        check_source(files / "rows.parquet", query=query)


def test_a_message_repeats_only_names_that_stand_in_the_query():
    def explained(message, query):
        return str(explain_failure(Failure.of(ValueError(message), query), "the query over files"))

    class BinderException(Exception):
        """As DuckDB's."""

    def bound(message, query):
        return str(explain_failure(Failure.of(BinderException(message), query), "the query over files"))

    message = f'Referenced column "{CANARY}" not found'
    assert CANARY in bound(message, f"select {CANARY} from source")
    for query in ("", "select u from source", f"select '{CANARY}' from source", f"select u -- {CANARY}\nfrom source"):
        assert CANARY not in bound(message, query)
    assert CANARY not in explained(message, f"select {CANARY} from source")


def test_text_files_and_other_schemas_are_refused(files):
    (files / "rows.csv").write_text("u,v\na,1\n")
    with pytest.raises(BadParameter, match="convert the files to Parquet"):
        pairs(files / "rows.csv", "select u, v from source")
    with pytest.raises(BadSource, match="are not those of the first file"):
        pairs([files / "rows.parquet", files / "secret.parquet"], "select u, v from source")
    with pytest.raises(BadSource, match="Delta Lake"):
        (files / "_delta_log").mkdir()
        pairs(files / "rows.parquet", "select u, v from source")


def test_missing_and_damaged_files_of_a_query(files):
    with pytest.raises(SourceNotFound, match="There is no file"):
        check_source("missing.db", query="select u, v from t")
    (files / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(DamagedSource):
        pairs(files / "bad.parquet", "select u, v from source")
    for source in ("-", ROWS, [("a", "x")]):
        with pytest.raises(BadParameter, match="neither a database nor files"):
            check_source(source, query="select u, v from source")


def test_a_query_that_mixes_people_warns(files):
    with pytest.warns(UserWarning, match="LIMIT"):
        check_source(files / "rows.parquet", query="from source limit 1")


def test_a_release_of_a_query(files):
    many = pa.table({"u": [str(i) for i in range(500)], "v": ["A"] * 500, "n": [1] * 500})
    pq.write_table(many, files / "many.parquet")
    made = dpunion.release(
        str(files / "many.parquet"),
        user="u",
        item="w",
        query="select u, lower(v) as w from source where n = 1",
        epsilon=1.0,
        delta=1e-6,
    )
    assert made.items == ("a",)
