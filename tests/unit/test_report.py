"""Pages: what they say, that they are complete and inert; and the release curves they draw."""

import base64
import hashlib
import json
import math
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.budget import Budget, guarantee
from dpunion.chances import MOST_HOLDERS, Company, Curve, find_needed, holders_between, release_curve, saturation
from dpunion.plans.counts import Counted, Estimate, Totals
from dpunion.plans.ngrams import LengthResult, Ngrams, plan_ngrams
from dpunion.releases.formats import is_utf8, join_key
from dpunion.releases.release import Numbers, Order, Release, with_items, with_ngrams
from dpunion.releases.statements import NOT_PRIVATE
from dpunion.report import (
    Axis,
    AxisScale,
    Chart,
    ChartKind,
    Section,
    Series,
    Table,
    check_page,
    lab_page,
    plan_page,
    release_page,
    sections,
    write_page,
)
from dpunion.report import charts as charts_module
from dpunion.report.pages import FIRST_ROWS, behind, embedded
from dpunion.report.tables import number, percent
from making import ngram_release as make_ngrams
from running import run_python

HOSTILE = (
    "<script>alert(1)</script>", "</script><script>alert(2)</script>", "<img src=x onerror=alert(3)>",
    '"><b>bold</b>', "=cmd|' /C calc'!A0", "\x1b[31mred", "a\u202eb\u2066c", "line\u2028separator", "<!--",
    "<!--<script>", "-->", "{{7*7}}", "{% raw %}", "\x00", "\ud800", "",
)  # fmt: skip
PLAN = dpunion.plan("weighted-laplace", epsilon=1.0, delta=1e-6)
MIB = 1 << 20


class Reader(HTMLParser):
    """Take a page apart: tags with attributes, and the text of scripts, styles and of everything else."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.inside, self.open = [], [], {"script": [], "style": []}, []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in {"li", "td", "th", "option", "dd"}:
            self.text.append(" ")
        if tag in self.inside:
            self.inside[tag].append("")
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.inside:
            self.open.pop()

    def handle_data(self, data):
        if self.open:
            self.inside[self.open[-1]][-1] += data
        else:
            self.text.append(data)

    def words(self):
        return re.sub(r"\s+", " ", "".join(self.text)).strip()

    def policy(self):
        found = [attrs["content"] for tag, attrs in self.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
        assert len(found) == 1
        return dict(part.strip().split(" ", 1) for part in found[0].split(";"))


def made(items, *, plan=PLAN, guaranteed=True):
    return Release(tuple(sorted(items)), plan, guaranteed)


@pytest.fixture(scope="module")
def ngram_release():
    settings = Ngrams(longest=2, first=dpunion.PolicyGaussian(), later=(dpunion.WeightedGaussian(),))
    results = (LengthResult(1, 2, None, None, 0.0), LengthResult(2, 1, 4, 9.5, 0.02))
    grams = (("of", 1), ("of the", 2), ("the", 1))
    return make_ngrams(grams, plan_ngrams(settings, Budget(1.0, 1e-6)), results, guaranteed=True)


@pytest.fixture(scope="module")
def planning():
    return plan_page(PLAN, epsilons=(1.0, 2.0), set_sizes=(1, 10), algorithms=("weighted-gaussian", "policy-gaussian"))


COUNTED_PLAN = dpunion.plan("weighted-gaussian", epsilon=1.0, delta=1e-6, counts=True)
TOTALS = Totals(Estimate(12_345, 12_061, 12_629), Estimate(6_789, 6_505, 7_073), 0.034, 1.21)


def counted_release(items, people, *, plan=COUNTED_PLAN, columns=("item",), totals=TOTALS):
    """Return a release in which this many people have the items, each number right to a tenth."""
    counted = Counted(
        tuple(people), tuple(max(1, 9 * one // 10) for one in people), tuple(11 * one // 10 for one in people), totals
    )
    return with_items(Release((), plan, True, columns=columns), items, counted)


@pytest.fixture(scope="module")
def counted():
    return counted_release(("apple", "pear", "<b>plum</b>"), (50, 2_000, 700))


@pytest.fixture(scope="module")
def counted_ngrams():
    settings = Ngrams(longest=2, first=dpunion.PolicyGaussian(), later=(dpunion.WeightedGaussian(),))
    results = (LengthResult(1, 2, None, None, 0.0), LengthResult(2, 1, 4, 9.5, 0.02))
    plan = plan_ngrams(settings, Budget(1.0, 1e-6), dpunion.Counts())
    numbers = Counted((400, 90, 500), (360, 60, 440), (440, 120, 560), TOTALS)
    draft = Release((), plan, True)
    return with_ngrams(draft, (("of", 1), ("of the", 2), ("the", 1)), results, numbers)


def studied(text="ε = 1"):
    line = Chart(text, Axis("ε", AxisScale.LOG), Axis(text), (Series(text, (1.0, 10.0), (5.0, 2e4)),), note=text)
    bars = Chart(
        "bars",
        Axis("algorithm", AxisScale.NAMES),
        Axis("items"),
        (Series("a", (text, "y"), (1.0, 2.0)), Series("b", (text,), (3.0,))),
        kind=ChartKind.BAR,
    )
    table = Table(text, ("algorithm", text), ((text, 1234567), ("y", None)), note=text)
    return lab_page(text, [Section(text, (text,), (line, bars, table), choice=text)], lead=text)


# --- what pages say -----------------------------------------------------------------------------------------
def test_the_page_of_a_release_says_everything():
    page = Reader(release_page(made(["apple", "pear"])))
    words = page.words()
    assert "2 items released" in words
    for sentence in made([]).statement.splitlines():
        assert sentence in words
    assert "Pr[M(D) ∈ O] ≤ eε · Pr[M(D′) ∈ O] + δ" in words
    assert "ε = 1 (so eε = 2.718) and δ = 10⁻⁶" in words
    assert "δ used, as certified 10⁻⁶ (> 99.9 % of it)" in words
    assert f"threshold a noisy weight must exceed {number(PLAN.threshold)}" in words
    assert "noise: Laplace, scale 1" in words
    assert "NOT PRIVATE" not in words
    assert json.loads(page.inside["script"][0]) == ["apple", "pear"]


def test_one_item_is_in_the_singular():
    assert "1 item released" in Reader(release_page(made(["apple"]))).words()


def test_the_page_of_a_test_release_says_that_it_is_not_private():
    words = Reader(release_page(made(["apple"], guaranteed=False))).words()
    assert words.count(NOT_PRIVATE) == 2
    assert f"What is guaranteed {NOT_PRIVATE} " in words
    assert "guarantee none" in words
    for promise in ("with differential privacy for each person", "differentially private", "sure", "In symbols"):
        assert promise not in words


def test_the_page_of_a_weak_release_says_so_first():
    weak = dpunion.plan("weighted-laplace", epsilon=12.0, delta=0.01, weak_budget=True)
    words = Reader(release_page(made(["apple"], plan=weak))).words()
    assert "guarantee weak" in words
    assert words.index("THE GUARANTEE IS WEAK") < words.index("What was released")
    assert "more than 99.999 % sure" in words
    assert "THE GUARANTEE IS WEAK" not in Reader(release_page(made(["apple"]))).words()


def test_keys_of_several_columns_are_a_table_with_these_columns():
    keys = (("AU", "android", "a\tb"), ("DE", "<b>ios</b>", ""))
    page = release_page(Release(keys, PLAN, True, columns=("country", "<device>", "query")))
    read = Reader(page)
    assert json.loads(read.inside["script"][0]) == [list(key) for key in keys]
    assert "country <device> query" in read.words()
    assert "Search all columns country <device> query Sort" in read.words()
    tags = [(tag, attrs.get("id")) for tag, attrs in read.tags]
    assert ("tbody", "list") in tags
    assert [attrs["data-column"] for _, attrs in read.tags if "data-column" in attrs] == ["0", "1", "2"]
    assert ("ol", "list") not in tags
    plain = Reader(release_page(made(["apple"]))).tags
    assert ("ol", "list") in [(tag, attrs.get("id")) for tag, attrs in plain]
    assert not any("data-column" in attrs for _, attrs in plain)


def test_rounds_are_shown():
    words = Reader(release_page(made([], plan=dpunion.plan("dp-sips", epsilon=1.0, delta=1e-6)))).words()
    assert "0 items released" in words
    assert "The budget was shared by 3 rounds." in words
    shares = [percent(share) for share in dpunion.DpSips().shares]
    for at, share in enumerate(shares, 1):
        assert f"round {at} {share}" in words


def test_the_page_of_n_grams(ngram_release):
    page = Reader(release_page(ngram_release))
    words = page.words()
    assert "3 n-grams released" in words
    for sentence in ngram_release.statement.splitlines():
        assert sentence in words
    assert json.loads(page.inside["script"][0]) == [["of", 1], ["of the", 2], ["the", 1]]
    assert "most tokens first" in words
    assert re.search(r" 2 50 % weighted-gaussian [\d.]+ 1 4 0\.02 ", words)


def test_the_page_of_a_release_with_counts(counted):
    page = Reader(release_page(counted))
    words = page.words()
    rows = [["pear", 2_000, 1_800, 2_200], ["<b>plum</b>", 700, 630, 770], ["apple", 50, 45, 55]]
    assert json.loads(page.inside["script"][0]) == rows
    assert "people in all, about 12,345 12,061 to 12,629 with an item not listed 6,789 6,505 to 7,073" in words
    assert "any item 12,345 12,061 12,629 an item that is not listed 6,789 6,505 7,073" in words
    assert "item people low high pear 2,000 1,800 2,200 <b>plum</b> 700 630 770 apple 50 45 55" in words
    assert "About 3.4 % of people have too many listed items" in words
    assert "at most 1.21 times" in words
    assert "1 2,000 (1,800 to 2,200) 2 700 (630 to 770) 3 50 (45 to 55)" in words
    assert "round 1 90 % counts 10 %" in words
    assert f"noise of the counts: standard deviation {number(COUNTED_PLAN.counts.fine)}" in words
    for sentence in counted.statement.splitlines():
        assert sentence in words
    assert "no counts" not in words
    ways = [attrs["value"] for tag, attrs in page.tags if tag == "option"]
    assert ways[:2] == ["down 1", "up 1"]


def test_the_page_reports_no_cut_if_nobody_was_cut():
    totals = Totals(Estimate(9, 1, 20), Estimate(0, 0, 11), 0.0, 1.0)
    words = Reader(release_page(counted_release(("apple",), (5,), totals=totals))).words()
    assert "too many listed items" not in words
    assert "people in all, about 9 1 to 20" in words
    assert "People by rank" not in words  # of one item there is no line


def test_the_page_begins_with_the_most_popular_in_any_order():
    by_item = with_items(
        Release((), COUNTED_PLAN, True), ("b", "a"), Counted((9, 3), (1, 1), (20, 9), TOTALS), Order.ITEM
    )
    assert by_item.items == ("a", "b")
    assert json.loads(Reader(release_page(by_item)).inside["script"][0]) == [["b", 9, 1, 20], ["a", 3, 1, 9]]


def test_without_scripts_the_most_popular_are_a_plain_table():
    count = FIRST_ROWS + 20
    release = counted_release(tuple(f"w{at:04}" for at in range(count)), tuple(range(count, 0, -1)))
    words = Reader(release_page(release)).words()
    assert f"w{FIRST_ROWS - 1:04} {count - FIRST_ROWS + 1} " in words
    assert f"w{FIRST_ROWS:04}" not in words
    assert f"The {FIRST_ROWS} most popular items are shown; all {count} are in this file" in words


def test_keys_with_counts_keep_their_columns():
    keys = (join_key(("DE", "ios")), join_key(("AU", "web")))
    page = Reader(release_page(counted_release(keys, (30, 80), columns=("country", "device"))))
    assert json.loads(page.inside["script"][0]) == [["AU", "web", 80, 72, 88], ["DE", "ios", 30, 27, 33]]
    assert "country device people low high AU web 80 72 88 DE ios 30 27 33" in page.words()
    assert "Search all columns country device" in page.words()


def test_n_grams_with_counts(counted_ngrams):
    page = Reader(release_page(counted_ngrams))
    words = page.words()
    rows = [["the", 1, 500, 440, 560], ["of", 1, 400, 360, 440], ["of the", 2, 90, 60, 120]]
    assert json.loads(page.inside["script"][0]) == rows
    assert "item tokens people low high the 1 500 440 560" in words
    assert "rank 1 token 2 tokens 1 500 (440 to 560) 90 (60 to 120) 2 400 (360 to 440) –" in words
    assert "The lengths and the counts share the budget" in words
    assert re.search(r" 2 45 % weighted-gaussian", words)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 999, 5_000])
def test_ranks_begin_at_one_end_at_the_last_and_every_item_counts_once(count):
    rows = [Estimate(people, max(1, people - 5), people + 5) for people in range(count, 0, -1)]
    line = sections._ranked("people", rows)
    assert (line.xs[0], line.xs[-1]) == (1.0, float(count))
    assert list(line.xs) == sorted(set(line.xs))
    assert list(line.ys) == sorted(line.ys, reverse=True)
    assert line.ys[0] == count
    assert all(low <= y <= high for low, y, high in zip(line.lows, line.ys, line.highs, strict=True))
    assert len(line.xs) <= 12 * math.log10(max(count, 2)) + 2


def test_the_page_of_a_plan_with_counts():
    page = plan_page(COUNTED_PLAN, epsilons=(2.0,), set_sizes=(1,), algorithms=("policy-laplace", "policy-gaussian"))
    words = Reader(page).words()
    assert "How precise the counts will be Counts take 10 % of the budget." in words
    for people in (20, 100, 1_000, 100_000):
        widths = (f"± {round(COUNTED_PLAN.counts.half_width(people, ratio)):,}" for ratio in (3, 10, 30))
        assert f" {people:,} {' '.join(widths)} " in words
    assert f"accurate to ± {COUNTED_PLAN.counts.total_width:,.0f}" in words
    # With counts there is no plan by an algorithm whose noise is not Gaussian, and the others leave room for them.
    assert "policy-laplace" not in words
    with_room = dpunion.plan("policy-gaussian", epsilon=1.0, delta=1e-6, counts=True)
    curve = release_curve(with_room, set_size=1, company=Company.RARE, holders=holders_between(1, MOST_HOLDERS))
    assert f"policy-gaussian {curve.holders_for(0.5)} {curve.holders_for(0.9)} " in words


def test_the_page_of_a_plan(planning):
    words = Reader(planning).words()
    assert "No data was read" in words
    formal, meaning, allowed = guarantee(PLAN.budget, subject="A list made by this plan", write=number)
    assert f"What it would mean for one person {meaning} {allowed} {formal}" in words
    assert "(1, 10⁻⁶)-differentially private" in formal
    for name in ("weighted-laplace", "weighted-gaussian", "policy-gaussian"):
        assert name in words
    for title in ("people with 1 item", "people with 10 items", "the others rare", "the others very popular"):
        assert f"Chance of release, {title}" in words or f"per person, {title}" in words
    assert "ε = 1 ε = 2" in words
    grid = holders_between(1, MOST_HOLDERS)
    curves = [release_curve(PLAN, set_size=size, company=Company.RARE, holders=grid) for size in (1, 10)]
    row = " ".join(number(curve.holders_for(chance)) for curve in curves for chance in (0.5, 0.9))
    assert f"weighted-laplace {row} " in words


def test_the_page_of_a_study_says_that_it_is_none_of_a_release():
    words = Reader(studied()).words()
    assert "A study, not a release: these numbers are not differentially private." in words
    assert "1,234,567" in words
    assert "20,000" in words


def test_pages_are_the_same_every_time():
    assert release_page(made(["apple"])) == release_page(made(["apple"]))
    assert studied() == studied()


def test_a_damaged_plan_still_has_a_page():
    values = json.loads(made(["apple"], plan=dpunion.plan("dp-sips", epsilon=1.0, delta=1e-6)).to_json())
    values["plan"]["rounds"] = []
    values["plan"]["stddev"] = 0.0
    words = Reader(release_page(Release.from_json(json.dumps(values)))).words()
    assert "1 item released" in words
    assert "What could be released" not in words


# --- pages are inert and complete ---------------------------------------------------------------------------
def pages(ngram_release, planning):
    hostile = make_ngrams(
        tuple((text, 2) for text in HOSTILE), ngram_release.plan, ngram_release.results, guaranteed=True
    )
    yield release_page(made(HOSTILE))
    yield release_page(made(HOSTILE, guaranteed=False))
    yield release_page(hostile)
    yield release_page(counted_release([text for text in HOSTILE if is_utf8(text)], range(1, len(HOSTILE))))
    yield planning
    for text in HOSTILE:
        if text.isprintable():
            yield studied(text or "-")


def test_nothing_is_loaded_and_nothing_but_our_script_can_run(ngram_release, planning):
    """The policy allows exactly our script and style, by hash; no element has a handler, a style or an address."""
    for page in pages(ngram_release, planning):
        reader = Reader(page)
        policy = reader.policy()
        assert policy["default-src"] == "'none'"
        assert policy["base-uri"] == policy["form-action"] == "'none'"
        assert set(policy) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
        assert policy["img-src"] == "data:"
        for kind in ("script", "style"):
            text = reader.inside[kind][-1]
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert policy[f"{kind}-src"] == f"'sha256-{digest}'"
        scripts = [attrs for tag, attrs in reader.tags if tag == "script"]
        assert scripts[-1] == {}
        assert scripts[:-1] in ([], [{"type": "application/json", "id": "data"}])
        tags = {tag for tag, _ in reader.tags}
        assert not tags & {"img", "iframe", "object", "embed", "base", "audio", "video", "b", "foreignobject", "use"}
        for tag, attrs in reader.tags:
            assert not [name for name in attrs if name.startswith("on") or name in {"src", "style", "srcdoc", "action"}]
            target = attrs.get("href", "#")
            assert target.startswith("#") or (tag, target) == ("link", "data:,")
        allowed = {"http://www.w3.org/2000/svg"}  # the name of a language, in our script; not an address
        assert set(re.findall(r"\w+://[^\"'\s)<]*", page)) <= allowed


def test_hostile_items_are_data_only():
    page = Reader(release_page(made(HOSTILE)))
    assert json.loads(page.inside["script"][0]) == sorted(HOSTILE)
    assert "alert" not in page.words()
    assert len(page.inside["script"]) == 2


def test_hostile_items_with_counts_are_data_and_text():
    texts = [text for text in HOSTILE if is_utf8(text)]
    page = Reader(release_page(counted_release(texts, range(1, len(texts) + 1))))
    assert sorted(row[0] for row in json.loads(page.inside["script"][0])) == sorted(texts)
    assert len(page.inside["script"]) == 2
    words = page.words()
    for text in ("<script>alert(1)</script>", "{{7*7}}", "\\x1b[31mred", "a\\u202eb\\u2066c"):
        assert text in words
    assert not set(words) & set("\x1b\u202e\u2066\u2028\x00")


def test_hostile_words_of_a_study_are_text():
    words = Reader(studied("<img src=x onerror=alert(3)>")).words()
    assert words.count("<img src=x onerror=alert(3)>") >= 6


@given(st.lists(st.text(st.characters(codec=None), max_size=8)))
def test_embedded_values_come_back_and_can_end_no_script(values):
    text = embedded(values)
    assert json.loads(text) == values
    assert not set(text) & set("<>&\u2028\u2029\u202e\u2066\ufeff\x7f\x85")
    assert text.isprintable() or not re.search(r"[\x00-\x1f\ud800-\udfff]", text)
    assert not re.search("[\x00-\x1f\ud800-\udfff]", text)


def test_pages_are_small(ngram_release, planning):
    """Less than 1.5 MB beside the list itself: in truth less than a tenth of that."""
    items = [f"word{number}" for number in range(20_000)]
    page = release_page(made(items))
    assert len(page.encode()) - len(embedded(items).encode()) < 0.15 * MIB
    counted = release_page(counted_release(items, range(1, 20_001)))
    assert len(counted.encode()) - len(Reader(counted).inside["script"][0].encode()) < 0.2 * MIB
    assert len(planning.encode()) < 0.15 * MIB


def test_the_table_behind_a_chart_is_the_chart():
    series = (Series("a", (1.0, 10.0), (0.25, 0.99999)), Series("b", (10.0, 20.5), (0.0, 1.0)))
    chart = Chart("t", Axis("n", AxisScale.LOG), Axis("p", AxisScale.PERCENT), series)
    assert behind(chart).columns == ("n", "a", "b")
    assert behind(chart).rows == (("1", "25 %", None), ("10", "> 99.9 %", "0 %"), ("20.5", None, "100 %"))
    drawing = charts_module.drawings(chart)["wide"]
    paths = re.findall(r'd="([^"]*)" data-series="(\d)" class="line s(\d)"', drawing)
    assert [(path.count("M"), path.count("L"), at, colour) for path, at, colour in paths] == [
        (1, 1, "0", "0"),
        (1, 1, "1", "1"),
    ]


def test_a_band_lies_behind_its_line():
    series = (
        Series("a", (1.0, 10.0, 100.0), (50.0, 20.0, 10.0), (40.0, 10.0, 1.0), (60.0, 40.0, 100.0)),
        Series("b", (1.0,), (5.0,)),
    )
    chart = Chart("t", Axis("n", AxisScale.LOG), Axis("p", AxisScale.LOG), series)
    assert behind(chart).rows[2] == ("100", "10 (1 to 100)", None)
    assert behind(chart).rows[0] == ("1", "50 (40 to 60)", "5")
    for drawing in charts_module.drawings(chart).values():
        assert drawing.index('class="band s0"') < drawing.index('class="line s0"')
        (band,) = re.findall(r'd="([^"]*)" data-series="0" class="band s0"', drawing)
        heights = [float(place.split(",")[1]) for place in re.findall(r"[\d.]+,[\d.]+", band)]
        assert min(heights) == 0.0  # as high as the axis goes, which ends at 100
        assert max(heights) == max(float(text) for text in re.findall(r"translate\(0,([\d.]+)\)", drawing))


def test_labels_that_would_overlap_are_left_out():
    lines = (Series("a", (1.0, 900.0), (1.0, 2.0)),)
    drawn = charts_module.drawings(Chart("t", Axis("n", AxisScale.LOG), Axis("p"), lines))
    labels = {screen: set(re.findall(r">([\d,]+)</text>", drawing)) for screen, drawing in drawn.items()}
    assert labels["narrow"] <= labels["wide"]
    assert "opacity" not in drawn["narrow"]


def test_a_smooth_line_passes_through_every_value():
    xs = (1.0, 2.0, 4.0, 8.0)
    chart = Chart("t", Axis("n", AxisScale.LOG), Axis("p"), (Series("a", xs, (0.0, 1.0, 3.0, 4.0)),), smooth=True)
    for drawing in charts_module.drawings(chart).values():
        (path,) = re.findall(r'd="(M[^"]*)" data-series', drawing)
        commands = re.findall("[MLC][^MLC]*", path)
        assert len(commands) == len(xs)
        heights = [float(command[1:].split(",")[-1]) for command in commands]
        assert heights[0] > heights[1] > heights[2] > heights[3] == 0.0
        assert (heights[0] - heights[1]) * 4 == pytest.approx(heights[0], abs=0.5)


def test_many_series_repeat_colours_with_dashes():
    chart = Chart("t", Axis("n"), Axis("p"), tuple(Series(str(at), (1.0, 2.0), (at, at)) for at in range(10)))
    drawing = charts_module.drawings(chart)["narrow"]
    assert 'class="line s1 dashed"' in drawing
    assert drawing.count("dashed") == 2


@pytest.mark.parametrize(
    ("series", "scale", "words"),
    [
        ((Series("a", (1.0,), (1.0, 2.0)),), AxisScale.LINEAR, "1 places for 2 values"),
        ((Series("a", (1.0,), (math.nan,)),), AxisScale.LINEAR, "not a finite number"),
        ((Series("a", (), ()), Series("a", (), ())), AxisScale.LINEAR, "the same name"),
        ((Series("a", (1.0,), (1.0,), (0.5,)),), AxisScale.LINEAR, "a band for some"),
        ((Series("a", (1.0,), (1.0,), (0.5,), (math.inf,)),), AxisScale.LINEAR, "not a finite number"),
        ((Series("a", (0.0,), (1.0,)),), AxisScale.LOG, "not above 0"),
    ],
)
def test_charts_that_cannot_be_drawn_are_refused(series, scale, words):
    with pytest.raises(dpunion.BadParameter, match=words):
        charts_module.drawings(Chart("t", Axis("n", scale), Axis("p"), series))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), ("<b>", "<b>"), (1234567, "1,234,567"), (1e-6, "10⁻⁶"), (9.998e-7, "9.998 × 10⁻⁷"), (0.0, "0"),
        (2.718281, "2.718"), (12345.6, "12,346"), (1e12, "10¹²"), (math.inf, "inf"), (0.001, "0.001"),
    ],
)  # fmt: skip
def test_numbers_are_written_for_people(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 %"), (1e-9, "< 0.1 %"), (0.5, "50 %"), (0.1234, "12.3 %"), (0.9999, "> 99.9 %"), (1.0, "100 %")],
)
def test_chances_are_written_for_people(value, text):
    assert percent(value) == text


# --- files --------------------------------------------------------------------------------------------------
def test_pages_are_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "report.html"
    assert write_page(target, "one é \ud800") == target
    assert target.read_bytes() == "one é ?".encode()
    with pytest.raises(dpunion.CannotWrite, match=r"exists already.*--force"):
        write_page(target, "two")
    write_page(target, "two", overwrite=True)
    assert target.read_text() == "two"
    assert list(tmp_path.iterdir()) == [target]


def test_bad_places_are_refused_early(tmp_path):
    with pytest.raises(dpunion.BadParameter, match=r"must be one of \.html, \.htm"):
        check_page(tmp_path / "report.pdf")
    with pytest.raises(dpunion.CannotWrite, match="does not exist"):
        check_page(tmp_path / "nowhere" / "report.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(dpunion.CannotWrite, match="is a folder"):
        check_page(tmp_path / "folder.html", overwrite=True)


def test_releases_are_read_by_their_format(ngram_release):
    release = made(HOSTILE[:-2])
    assert Release.from_json(release.to_json()) == release
    assert Release.from_json(ngram_release.to_json()) == ngram_release
    for text in ("", "[]", "{}", '{"format": "dpunion-ngrams/1"}'):
        with pytest.raises(dpunion.BadParameter, match="not a release"):
            Release.from_json(text)


def test_without_the_extra_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(dpunion.BadParameter, match=r"pip install 'dpunion\[report\]'"):
        studied()


def test_the_page_libraries_are_loaded_when_needed():
    code = "import sys, dpunion.report; print(sorted({'jinja2', 'vl_convert', 'altair'} & set(sys.modules)))"
    assert run_python(code, check=True).stdout == "[]\n"


# --- release curves -----------------------------------------------------------------------------------------
EPSILON, DELTA, SIZE, COPIES = 3.0, 1e-4, 5, 700
MODELLED = [
    dpunion.Funnel(), dpunion.Funnel(rounds=2, first_share=0.4), dpunion.PolicyGaussian(user_order="smallest-first"),
    dpunion.PolicyLaplace(user_order="smallest-first"), dpunion.DpSips(),
    dpunion.WeightedGaussian(max_items_per_user=3), dpunion.WeightedLaplace(),
    dpunion.CountGaussian(max_items_per_user=5), dpunion.OptimalSingleItem(),
]  # fmt: skip


def modelled_rows(holders, company):
    """Yield the model's database, COPIES times: people who hold x and SIZE - 1 other items."""
    others = {Company.RARE: "r{copy}-{user}-{item}", Company.EQUAL: "e{copy}-{item}", Company.POPULAR: "p{item}"}
    for copy in range(COPIES):
        for user in range(holders):
            name = f"user{copy}-{user}"
            yield name, f"x{copy}"
            for item in range(SIZE - 1):
                yield name, others[company].format(copy=copy, user=user, item=item)
    if company is Company.POPULAR:
        yield from ((f"single{item}-{user}", f"p{item}") for item in range(SIZE - 1) for user in range(200))


@pytest.mark.full
@pytest.mark.parametrize("company", Company)
@pytest.mark.parametrize("algorithm", MODELLED, ids=lambda one: f"{one.name}-{getattr(one, 'rounds', 1)}")
def test_curves_agree_with_the_real_thing(algorithm, company):
    """Run the release on the model's database: the share of x that comes out is the curve's chance."""
    planned = dpunion.plan(algorithm, epsilon=EPSILON, delta=DELTA)
    grid = holders_between(1, 200)
    holders = release_curve(planned, set_size=SIZE, company=company, holders=grid).holders_for(0.6)
    curve = release_curve(planned, set_size=SIZE, company=company, holders=np.array([holders]))
    released = dpunion.release(
        list(modelled_rows(holders, company)), epsilon=EPSILON, delta=DELTA, algorithm=algorithm, unsafe_test_key=7
    )
    share = sum(item.startswith("x") for item in released.items) / COPIES
    chance = curve.chances[0]
    assert 0.5 < chance < 0.97
    assert abs(share - chance) < 3.5 * math.sqrt(chance * (1.0 - chance) / COPIES) + 0.015


@pytest.mark.full
@pytest.mark.parametrize("company", Company)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_more_holders_more_chance(name, company):
    planned = dpunion.plan(algorithm_named(name), epsilon=2.0, delta=1e-5)
    grid = holders_between(1, 2000)
    for size in (1, 7, 400):
        chances = release_curve(planned, set_size=size, company=company, holders=grid).chances
        assert chances[0] <= 1.2e-5  # an item of one person: practically never
        assert np.all(np.diff(chances) >= -0.012)
        assert np.all((chances >= 0.0) & (chances <= 1.0))


def test_more_budget_fewer_holders():
    grid = holders_between(1, 1000)
    plans = [dpunion.plan("policy-gaussian", epsilon=epsilon, delta=1e-6) for epsilon in (0.5, 1.0, 2.0, 4.0)]
    curves = [release_curve(plan, set_size=10, company=Company.EQUAL, holders=grid) for plan in plans]
    needed = [curve.holders_for(0.5) for curve in curves]
    assert needed == sorted(needed, reverse=True)
    assert len(set(needed)) == 4


def test_the_weight_of_one_algorithm_by_hand():
    """Weighted Gaussian: n people with 4 items each give n / 2."""
    planned = dpunion.plan("weighted-gaussian", epsilon=1.0, delta=1e-6)
    curve = release_curve(planned, set_size=4, company=Company.RARE, holders=np.array([40, 60]))
    expected = [0.5 * math.erfc((planned.threshold - n / 2) / planned.scale / math.sqrt(2)) for n in (40, 60)]
    assert curve.chances == pytest.approx(expected, rel=1e-12)


def test_what_is_not_kept_does_not_count():
    """With one item of two kept, the number of keepers is binomial."""
    planned = dpunion.plan(dpunion.CountGaussian(max_items_per_user=1), epsilon=1.0, delta=1e-6)
    whole = release_curve(planned, set_size=1, company=Company.EQUAL, holders=np.arange(1, 61)).chances
    half = release_curve(planned, set_size=2, company=Company.EQUAL, holders=np.array([60])).chances[0]
    mixed = sum(math.comb(60, n) / 2.0**60 * whole[n - 1] for n in range(1, 61))
    assert half == pytest.approx(mixed, rel=1e-9)


def test_holders_needed_are_read_between_the_points():
    curve = Curve(PLAN, 1, Company.RARE, np.array([10, 20, 40]), np.array([0.1, 0.3, 0.7]))
    assert [curve.holders_for(chance) for chance in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)] == [10, 10, 15, 20, 30, 40]
    assert curve.holders_for(0.71) is None


def test_saturation_is_where_the_curve_has_risen():
    for name in ("weighted-gaussian", "policy-laplace", "dp-sips"):
        planned = dpunion.plan(name, epsilon=1.0, delta=1e-6)
        at = saturation(planned, set_size=10, company=Company.RARE)
        chance = release_curve(planned, set_size=10, company=Company.RARE, holders=np.array([at])).chances[0]
        assert 0.94 < chance <= 1.0


@pytest.mark.parametrize("holders", [[0], [], [MOST_HOLDERS + 1]])
def test_senseless_numbers_of_holders_are_refused(holders):
    with pytest.raises(dpunion.BadParameter, match="numbers of people from 1"):
        release_curve(PLAN, set_size=1, company=Company.RARE, holders=np.array(holders, np.int64))


def test_senseless_set_sizes_are_refused():
    with pytest.raises(dpunion.BadParameter, match="set_size"):
        release_curve(PLAN, set_size=0, company=Company.RARE, holders=np.array([1]))


def test_the_page_of_a_plan_with_a_look_lists_its_plans():
    planned = dpunion.plan(epsilon=2.0, delta=1e-5)
    page = plan_page(planned, epsilons=(), algorithms=())
    assert "How many items per person are used" in page
    assert "Everything else on this page is computed for a limit of 300." in page
    for plan in planned.alternatives:
        assert number(plan.threshold) in page
    assert "How many items per person are used" not in plan_page(planned.opening, epsilons=(), algorithms=())


# --- candidates -----------------------------------------------------------------------------------------------
LISTED_PLAN = dpunion.plan("weighted-gaussian", epsilon=1.0, delta=1e-6, counts=True, candidates=["pear", "plum"])
MARKS = (Numbers("listed", (False, True), 1),)
MISTAKES = "On average at most 0.002 of the 2 candidates come out although nobody has them"


def test_the_page_marks_candidates_and_says_how_many_come_out_by_mistake():
    page = Reader(release_page(with_items(Release((), LISTED_PLAN, True), ("apple", "pear"), numbers=MARKS)))
    words = page.words()
    assert json.loads(page.inside["script"][0]) == [["apple", "no"], ["pear", "yes"]]
    assert "candidates 2 at most about 0.002 out by mistake" in words
    assert MISTAKES in words
    assert f"threshold of candidates {number(LISTED_PLAN.candidates.threshold)}" in words
    assert LISTED_PLAN.candidates.sha256 in words
    assert "candidates 2" not in Reader(release_page(made(["apple"]))).words()


def test_with_counts_the_mark_is_before_the_numbers():
    counts = Counted((9, 30), (1, 20), (20, 40), TOTALS)
    release = with_items(Release((), LISTED_PLAN, True), ("apple", "pear"), counts, numbers=MARKS)
    page = Reader(release_page(release))
    assert json.loads(page.inside["script"][0]) == [["pear", "yes", 30, 20, 40], ["apple", "no", 9, 1, 20]]
    assert "item listed people low high pear yes 30 20 40 apple no 9 1 20" in page.words()
    ways = [attrs["value"] for tag, attrs in page.tags if tag == "option"]
    assert ways[:2] == ["down 2", "up 2"]


def test_the_page_of_a_plan_says_how_many_people_a_candidate_needs():
    words = Reader(plan_page(LISTED_PLAN, epsilons=(), set_sizes=(1,), algorithms=("policy-gaussian",))).words()
    plain, listed = (find_needed(LISTED_PLAN, (1,), listed=listed)[0] for listed in (False, True))
    assert listed.even < plain.even
    assert f"weighted-gaussian {plain.even} {plain.likely} weighted-gaussian, a candidate {listed.even} " in words
    assert "An item of a single person that is not a candidate is practically never released" in words
    assert MISTAKES in words
