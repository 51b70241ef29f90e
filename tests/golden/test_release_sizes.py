"""Release sizes: the papers' tables on the AskReddit-like set, and known sizes on real sets."""

import math
import statistics

import pytest

import dpunion
from dpunion.algorithms import algorithm_named
from dpunion.samples import debian_depends
from dpunion_lab.generators import AskRedditLike

E10 = math.exp(-10)


@pytest.fixture(scope="module")
def ask_reddit(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "askreddit.parquet"
    AskRedditLike().write_parquet(path)
    return path


def mean_size(path, algorithm, epsilon, delta, runs=3, **columns):
    columns = columns or {"item": "item"}
    budget = {"epsilon": epsilon, "delta": delta}
    sizes = [
        len(dpunion.release(path, user="user", **columns, **budget, algorithm=algorithm, unsafe_test_key=run))
        for run in range(runs)
    ]
    return statistics.fmean(sizes)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "limit", "papers", "gain"),
    [
        ("weighted-gaussian", 100, 8_904, 1.03),
        ("policy-laplace", 50, 15_421, None),
        ("policy-gaussian", 100, 17_024, 1.045),
    ],
)
def test_published_sizes_are_reproduced_and_exact_calibration_adds(ask_reddit, name, limit, papers, gain):
    published = algorithm_named(name, max_items_per_user=limit, calibration="published")
    size = mean_size(ask_reddit, published, 3.0, E10)
    assert size == pytest.approx(papers, rel=0.05)
    if gain is not None:
        exact = mean_size(ask_reddit, algorithm_named(name, max_items_per_user=limit), 3.0, E10)
        assert exact >= gain * size


@pytest.mark.full
@pytest.mark.parametrize(("epsilon", "delta", "least"), [(3.0, E10, 21_000), (1.0, 1e-5, 10_000)])
def test_funnel_on_the_generated_set(ask_reddit, epsilon, delta, least):
    assert mean_size(ask_reddit, dpunion.Funnel(), epsilon, delta) >= least


@pytest.mark.parametrize(("epsilon", "delta", "least"), [(3.0, E10, 3_280), (1.0, 1e-5, 1_015)])
def test_funnel_on_the_bundled_set(epsilon, delta, least):
    assert mean_size(debian_depends(), dpunion.Funnel(), epsilon, delta) >= least


@pytest.mark.full
@pytest.mark.parametrize(("epsilon", "delta", "expected"), [(3.0, E10, 11_400), (1.0, 1e-5, 4_080)])
def test_policy_gaussian_on_reviews(shared_data, epsilon, delta, expected):
    path = shared_data / "imdb_reviews_50k.parquet"
    assert mean_size(path, dpunion.PolicyGaussian(), epsilon, delta, 1, text="text") == pytest.approx(
        expected, rel=0.04
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "column", "sizes"),
    [
        ("imdb_reviews_50k", "text", (15_700, 6_560)),
        ("ubuntu_irc", "text", (3_450, 1_520)),
        ("debian_descriptions", "text", (4_020, 1_720)),
        ("online_retail", "item", (1_900, 555)),
        ("goodbooks_to_read", "item", (8_450, 3_780)),
    ],
)
def test_funnel_on_real_sets(shared_data, name, column, sizes):
    for (epsilon, delta), least in zip([(3.0, E10), (1.0, 1e-5)], sizes, strict=True):
        size = mean_size(shared_data / f"{name}.parquet", dpunion.Funnel(), epsilon, delta, **{column: column})
        assert size >= least
