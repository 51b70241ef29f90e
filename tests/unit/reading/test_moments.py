"""Dates and timestamps at a granularity: one text for each value, whatever its type, unit, zone and neighbours."""

import datetime as dt
import zoneinfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
from dpunion.errors import BadParameter, BadSource, UnsupportedType
from dpunion.reading.spelling import Granularity
from dpunion.requests import Request
from opening import check_source, read_pairs

MOMENT = dt.datetime.fromisoformat("2024-12-30T23:59:59.999999")
TEXTS = {"year": "2024", "month": "2024-12", "week": "2025-W01", "day": "2024-12-30", "hour": "2024-12-30T23"}
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def items(source, granularity="day", value="v", user="u"):
    return [item for _, item in read_pairs(source, user=user, value=value, granularity=Granularity(granularity))]


def table(values, type_):
    return pa.table({"u": [str(number) for number in range(len(values))], "v": pa.array(values, type_)})


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("granularity", TEXTS)
def test_each_granularity_has_the_stated_texts(granularity, unit):
    moment = MOMENT.replace(microsecond=0)
    assert items(table([moment, None], pa.timestamp(unit)), granularity) == [TEXTS[granularity]]
    zoned = TEXTS[granularity] + ("Z" if granularity == "hour" else "")
    for zone in ("UTC", "Europe/Berlin", "-08:00"):
        assert items(table([moment.replace(tzinfo=dt.UTC)], pa.timestamp(unit, zone)), granularity) == [zoned]
    if granularity != "hour":
        assert items(table([moment.date()], pa.date32()), granularity) == [TEXTS[granularity]]
        assert items(table([moment.date()], pa.date64()), granularity) == [TEXTS[granularity]]


@given(st.lists(st.datetimes(), min_size=1), st.sampled_from(list(Granularity)))
def test_each_text_is_of_its_own_value(moments, granularity):
    """Among others and alone, from Arrow and from Python, long before 1970 too."""
    whole = items(table(moments, pa.timestamp("us")), granularity.value)
    alone = [items(table([moment], pa.timestamp("us")), granularity.value)[0] for moment in moments]
    pairs = [(str(number), moment) for number, moment in enumerate(moments)]
    assert whole == alone == items(pairs, granularity.value, None, None)
    formats = {"year": "%Y", "month": "%Y-%m", "week": "%G-W%V", "day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
    spelled = [moment.strftime(formats[granularity.value]) for moment in moments]
    assert whole == [one.rjust(len(text), "0") for one, text in zip(spelled, whole, strict=True)]


def test_every_source_gives_the_same_days(tmp_path):
    moments = [MOMENT, MOMENT - dt.timedelta(days=40), None]
    rows = table(moments, pa.timestamp("us"))
    pq.write_table(rows, tmp_path / "rows.parquet")
    expected = ["2024-12-30", "2024-11-20"]
    relation = duckdb.sql("select * from rows")
    coded = rows.set_column(1, "v", rows["v"].dictionary_encode())
    for source in (
        *(tmp_path / "rows.parquet", rows, rows.to_pandas(), pl.from_arrow(rows), pl.from_arrow(rows).lazy()),
        *(ds.dataset(rows), iter(rows.to_batches()), relation, coded),
    ):
        assert items(source) == expected, type(source)
    lists = pa.table({"u": ["a"], "v": [[MOMENT, MOMENT]]})
    assert items(lists) == ["2024-12-30"] * 2
    with duckdb.connect(tmp_path / "rows.duckdb") as connection:
        connection.execute("create table t as from rows")
    queried = read_pairs(tmp_path / "rows.duckdb", query="select u, v from t", granularity=Granularity.DAY)
    assert sorted(item for _, item in queried) == sorted(expected)


def test_moments_in_postgres(postgres_url, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "pa:ss@w/rd")
    place = f"postgresql://tester@{postgres_url.rsplit('@', maxsplit=1)[1]}"
    query = "select '1' as u, timestamptz '2024-12-31 00:30+01' as zoned, timestamp '2024-12-31 00:30' as plain"
    for value, expected in (("zoned", "2024-12-30"), ("plain", "2024-12-31")):
        assert read_pairs(place, value=value, query=query, granularity=Granularity.DAY) == [("1", expected)]
        with pytest.raises(UnsupportedType, match="--granularity day"):
            check_source(place, value=value, query=query)


def test_moments_are_parts_of_keys_and_keys_without_one_are_refused(tmp_path):
    rows = table([MOMENT], pa.timestamp("us")).append_column("c", pa.array(["AU"]))
    assert items(rows, "month", ["c", "v"]) == ["AU\x1f2024-12"]
    assert items([("a", ("AU", MOMENT))], "month", ["c", "v"], None) == ["AU\x1f2024-12"]
    with pytest.raises(BadParameter, match="no item column"):
        items(rows.append_column("d", pa.array(["x"])), "month", ["c", "d"])
    with pytest.raises(BadParameter, match="no item column"):
        items([("a", ("AU", "x"))], "month", ["c", "v"], None)


def test_zones_do_not_mix():
    zoned, plain = table([MOMENT], pa.timestamp("us", "UTC")), table([MOMENT], pa.timestamp("us"))
    days = table([MOMENT.date()], pa.date32())
    for pair in ([zoned, plain], [plain, days], [plain, table(["2024-12-30"], pa.string())]):
        with pytest.raises((UnsupportedType, BadParameter), match=r"Mixed types|no item column"):
            items(iter(pair))
    aware = dt.datetime(2024, 12, 31, 0, 30, tzinfo=BERLIN)
    assert items([("a", aware)], "hour", None, None) == ["2024-12-30T23Z"]
    for other in (MOMENT, MOMENT.date(), "2024-12-31"):
        with pytest.raises((UnsupportedType, BadParameter)):
            items([("a", aware), ("b", other)], "day", None, None)
    with pytest.raises((UnsupportedType, BadParameter), match=r"to_datetime|no item column"):
        items(pd.DataFrame({"u": ["a", "b"], "v": pd.Series([aware, MOMENT], dtype=object)}))


def test_columns_that_a_granularity_cannot_round_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("u,v\na,2024-12-30 10:00\n")
    (tmp_path / "rows.jsonl").write_text('{"u": "a", "v": "2024-12-30 10:00"}\n')
    for source in (tmp_path / "rows.csv", tmp_path / "rows.jsonl", table(["2024-12-30"], pa.string())):
        with pytest.raises(BadParameter, match="no item column"):
            check_source(source, granularity=Granularity.DAY)
    with pytest.raises(UnsupportedType, match="no hours"):
        items(table([MOMENT.date()], pa.date32()), "hour")
    with pytest.raises(UnsupportedType, match="outside of the years"):
        items(table([2**62], pa.int64()).cast(pa.schema([("u", pa.string()), ("v", pa.timestamp("s"))])))
    with pytest.raises(UnsupportedType, match="--granularity day"):
        check_source(table([MOMENT], pa.timestamp("us")))
    with pytest.raises(BadParameter, match="granularity"):
        Request.of("x.parquet", user="u", item=dpunion.Dated("v", "minute"))


def test_a_moment_that_utc_has_no_year_for_is_refused():
    early = dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))
    with pytest.raises(BadSource, match="the pairs"):
        items([("a", early)], "day", None, None)


def test_a_release_by_day_and_its_fingerprint():
    rows = table([MOMENT - dt.timedelta(minutes=number) for number in range(300)], pa.timestamp("us"))
    made = dpunion.release(rows, user="u", item=dpunion.Dated("v"), epsilon=1.0, delta=1e-6)
    assert made.items == ("2024-12-30",)
    facts = [Request.of(rows, user="u", item=item).facts() for item in ("v", dpunion.Dated("v"))]
    assert [one["granularity"] for one in facts] == [None, "day"]
