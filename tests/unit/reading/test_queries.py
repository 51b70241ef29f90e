"""Queries in which one person's rows may decide about other people's: seen in their text, and warned of."""

import warnings

import pytest

import dpunion
from dpunion.reading.databases import QueryMixesPeople, mixing_clauses, warn_of_mixing
from dpunion.requests import SparkSource
from opening import write_sqlite

MIXING = {
    "select u, v from t order by ts desc limit 1000": "LIMIT",
    "SELECT u, v FROM t\nLiMiT 5": "LIMIT",
    "select u, v from t offset 5": "OFFSET",
    "select u, v from t fetch first 5 rows only": "FETCH",
    "select u, v from t group  by u, v": "GROUP BY",
    "select v, max(u) as u from t group by v having count(*) > 3": "HAVING",
    "select u, v from t qualify row_number() over (partition by v) = 1": "QUALIFY",
    "select u, v, rank() over(order by v) from t": "OVER",
    "select distinct on (v) u, v from t": "DISTINCT ON",
    "select u, v from t tablesample bernoulli (10)": "TABLESAMPLE",
    "select u, v from t using sample 10%": "USING SAMPLE",
    "select * from t pivot (max(u) for v in ('a'))": "PIVOT",
    "select a.u, b.v from a left join b on a.x = b.x": "JOIN",
    "select a.u, b.v from a, b where a.x = b.x": "several tables in FROM",
    "select u, v from t where v in (select v from w)": "a second SELECT",
    "with w as (select * from t) select u, v from w": "a second SELECT",
    "select u, v from t where not exists (from t as s where s.v = 'y')": "a second FROM",
    "from (from t) select u, v": "a second FROM",
    "select u, extract(year from ts) as v from t where v in (from w)": "a second FROM",
    "select max(u) as u, mode(v) as v from t": "an aggregate function",
    "select any_value (u) as u, v from t": "an aggregate function",
    "select u, string_agg(v, ',') filter (v > '') as v from t": "an aggregate function",
    "select u, v from t except table w": "EXCEPT",
    "select u, v from t intersect table w": "INTERSECT",
    "select u, v from t -- all of it\nlimit 5": "LIMIT",
    "select u, v from t /* some */ limit 5": "LIMIT",
    "select 'it''s', u from t limit 5": "LIMIT",
    "select u, v from t where v <> 'C:\\' limit 5 -- '": "LIMIT",  # standard: the string ends at the quote
    # Spark: the string ends at the second quote, where the standard reading would go on to the last one.
    "select u, v from t where v <> 'a\\'' limit 5 -- '": "LIMIT",
    'select u, v from t where v <> "a\\"" limit 5 -- "': "LIMIT",
}
HARMLESS = [
    "select u, v from t",
    "select u, lower(v) as v, x from t where ts > 5 and v <> '' order by u, v",
    "select distinct u, v from t",
    "select u, v from t where v = 'limit 5' or v = 'a join b'",
    "select u, v from t where v = 'it''s over (the) limit'",
    'select u, "limit", "group by" from t',
    "select u, `offset` from t",
    "select u, v from t -- limit 5",
    "select u, v from t /* having\n a join */ where v > 0",
    "select u, v from t where v = $$limit 5$$ or v = $a$ over $a$",
    "select u, limits, overview, joined, my_limit, limit_ from t",
    "select extract(year from ts), u, v from t where coalesce(u, v) = v",
    "select u, v from t where u is distinct from v order by u, v",
    "select u, v from t where u is not distinct  from v",
    "select trim(both ' ' from u) as u, substring(v from 1 for 3) as v from t where extract(year from ts) = 2024",
    "select u, overlay(v placing 'x' from 2) as v, trim(leading from trim(v)) as w from t",
    "from t select u, v",
    "select u, count, first, max from t where list is null",
    "select * except (w) from t",
]


@pytest.mark.parametrize(("query", "clause"), MIXING.items())
def test_queries_that_mix_people_are_recognised(query, clause):
    assert clause in mixing_clauses(query)


@pytest.mark.parametrize("query", HARMLESS)
def test_strings_names_comments_and_rows_alone_are_not_taken_for_it(query):
    assert mixing_clauses(query) == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_mixing(query)


def test_the_warning_says_what_a_query_may_do_and_does_not_repeat_it():
    with pytest.warns(QueryMixesPeople) as caught:
        warn_of_mixing("select u, Secret from t having x order by 1 limit 5")
    (warning,) = caught
    text = str(warning.message)
    assert "LIMIT and HAVING" in text
    assert "may depend only on rows of the same person" in text
    assert "nothing is guaranteed" in text
    assert "secret" not in text.lower()


@pytest.fixture
def posts(tmp_path):
    rows = [(f"u{i}", "x", "a text") for i in range(50)]
    return write_sqlite(tmp_path / "posts.db", "posts (author text, word text, body text)", rows)


def test_releases_from_a_database_warn(posts):
    pytest.importorskip("adbc_driver_sqlite", reason="the driver for SQLite is not installed")
    budget = {"user": "author", "epsilon": 1.0, "delta": 1e-6}
    query = "select * from posts limit 10"
    with pytest.warns(QueryMixesPeople, match="LIMIT"):
        dpunion.release(posts, item="word", query=query, **budget)
    with pytest.warns(QueryMixesPeople, match="LIMIT"):
        dpunion.release_ngrams(posts, text="body", longest=1, query=query, **budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dpunion.release(posts, item="word", query="select * from posts", **budget)


def test_a_query_of_spark_warns():
    """Before Spark starts: its text is enough."""
    from dpunion.engines.spark.sources import check_names

    with pytest.warns(QueryMixesPeople, match="JOIN"):
        check_names(SparkSource(("t",), format="table"), "select * from source join other using (x)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_names(SparkSource(("t",), format="table"), "select * from source")
