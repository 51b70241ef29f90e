"""A release of n-grams from end to end: settings, calibration, tokenisers, documents, files and statements."""

import dataclasses
import json
import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.algorithms import Calibration, Funnel, PolicyGaussian, WeightedGaussian
from dpunion.budget import Budget
from dpunion.calibration import gaussian
from dpunion.calibration.composition import (
    FUNNEL_GAUSSIAN_SHARE,
    compose_funnel,
    compose_unit_norm,
    geometric_shares,
    spurious_tail,
)
from dpunion.calibration.rounding import funnel_slack
from dpunion.engines.local import texts as texts_module
from dpunion.errors import BadParameter, BadSource, CannotWrite, DamagedSource, InternalError, NotPrivate, UnknownColumn
from dpunion.kernels.normal import gaussian_delta, unit_norm_delta
from dpunion.ngrams import lengths
from dpunion.plans import plan_release
from dpunion.plans.ngrams import LengthPlan, Ngrams, plan_ngrams
from dpunion.randomness import RunKey
from dpunion.releases.release import Release
from dpunion.releases.statements import NOT_PRIVATE
from dpunion.requests import Run, Words
from dpunion.sets import streams
from dpunion.sets.encoding import Normalization
from dpunion.sets.streams import read_tokens
from dpunion.text.splitting import Splitting, Tokenizer, check_splitting, documents

E10 = math.exp(-10)
KEY = RunKey.for_tests(4)
CHEAP = Ngrams(longest=3, first=WeightedGaussian(max_items_per_user=10), later=PolicyGaussian(max_items_per_user=10))


def corpus(users=400):
    """Give everybody one common sentence and one of their own."""
    return [(f"user{i}", text) for i in range(users) for text in ("The quick brown fox.", f"secret{i} canary{i}")]


def released(source=None, **options):
    common = {"epsilon": 3.0, "delta": 1e-5, "algorithm": CHEAP, "normalize": "nfc-lower", "unsafe_test_key": 5}
    return dpunion.release(corpus() if source is None else source, **(common | options))


# --- what comes out ------------------------------------------------------------------------------------------
def test_common_ngrams_come_out_and_private_ones_do_not():
    release = released()
    assert set(release.of_length(1)) == {"the", "quick", "brown", "fox"}
    assert {"the quick", "quick brown", "brown fox"} <= set(release.of_length(2))
    assert {"the quick brown", "quick brown fox"} <= set(release.of_length(3))
    assert not any("secret" in text or "canary" in text for text, _ in release.rows())
    assert list(release.rows()) == sorted(release.rows())
    assert not release.guaranteed
    assert release.statement == NOT_PRIVATE


def test_the_short_way_is_the_long_one():
    short = dpunion.release_ngrams(corpus(), longest=2, epsilon=3.0, delta=1e-5, unsafe_test_key=5)
    assert short == released(algorithm=Ngrams(longest=2))
    with pytest.raises(TypeError):
        dpunion.release_ngrams(corpus(), longest=5, algorithm=Ngrams(), epsilon=3.0, delta=1e-5)


def test_ngrams_are_of_texts_and_of_all_lengths():
    for item in ("word", ["word", "other"], Words(lengths="1-2")):
        with pytest.raises(BadParameter, match="needs a column of texts"):
            released(item=item)
    with pytest.raises(BadParameter, match="known list cannot be combined"):
        released(known=["the"])


def test_a_new_format_is_one_of_both_kinds_of_release(tmp_path, monkeypatch):
    from dpunion.releases.formats import WRITERS

    items = Release(("apple",), dpunion.plan(dpunion.Funnel(), epsilon=1.0, delta=1e-6), guaranteed=True)
    for release in (released(), items):
        with pytest.raises(BadParameter, match="suffix"):
            release.write(tmp_path / "out.list")
    monkeypatch.setitem(WRITERS, ".list", lambda release, file: file.write("|".join(release.lines()).encode()))
    assert b"quick brown|" in released().write(tmp_path / "ngrams.list").read_bytes()
    assert items.write(tmp_path / "items.list").read_bytes() == b"apple"


def test_ngrams_never_cross_a_document():
    texts = [(f"user{i}", text) for i in range(400) for text in ("alpha beta", "gamma delta")]
    assert "beta gamma" not in released(texts, algorithm=tiny_rate()).of_length(2)
    assert "beta gamma" in released(
        [(f"user{i}", "alpha beta gamma delta") for i in range(400)], algorithm=tiny_rate()
    ).of_length(2)


def test_ngrams_do_not_cross_sentences_when_asked():
    texts = [(f"user{i}", "One two. Three four") for i in range(400)]
    assert "two three" in released(texts, algorithm=tiny_rate()).of_length(2)
    assert "two three" not in released(texts, algorithm=tiny_rate(), item=Words(sentences=True)).of_length(2)


def tiny_rate():
    return dataclasses.replace(CHEAP, longest=2, spurious_rate=1e-6)


def test_the_same_test_key_gives_the_same_release_and_fresh_keys_are_private():
    assert released() == released()
    fresh = released(unsafe_test_key=None)
    assert fresh.guaranteed
    assert "NOT PRIVATE" not in fresh.statement


@pytest.mark.parametrize("source", [[], [("u", "")], [("u", "word")]], ids=["nothing", "empty text", "one word"])
def test_nothing_to_release_is_an_empty_release(source):
    release = released(source)
    assert len(release) == 0
    assert [one.released for one in release.results] == [0, 0, 0]
    assert [one.candidates for one in release.results] == [None, 0, 0]


def test_the_funnel_default_runs():
    release = released(algorithm=Ngrams(longest=2))
    assert "quick brown" in release.of_length(2)
    assert release.plan.first.algorithm.name == "funnel"


def test_a_longer_ngram_than_any_text_is_not_released_for_real():
    texts = [(f"user{i}", "alpha beta") for i in range(400)]
    settings = dataclasses.replace(CHEAP, spurious_rate=1e-6)
    assert released(texts, algorithm=settings).of_length(3) == ()


def test_ngrams_kept_by_nobody_but_held_can_come_out_and_their_places_count(monkeypatch):
    """With one kept bigram per user, others that are held can be drawn as spurious, and then lead on to trigrams."""
    text = pa.array(["a b c d"]), pa.array(["a b c d"])
    stream = read_tokens([text], KEY, Splitting(), Normalization.NFC)
    tokens, positions, words = lengths.first_level(stream, np.arange(4))
    plan = LengthPlan(2, 0.5, WeightedGaussian(max_items_per_user=1), 1.0, 0.0)
    everything = lengths.CandidateGrams(tokens).at(np.arange(16))
    kept = []

    def passing_all_kept(_mechanism, contributions, _key, _threads):
        held = np.unique(contributions.items)
        kept.append(len(held))
        return held

    monkeypatch.setattr(lengths, "mark_candidates", lambda candidates, chance, key, draw_round: everything)
    monkeypatch.setattr(texts_module, "run_rounds", passing_all_kept)
    texts = texts_module.LocalTexts(stream, KEY, positions)
    level, _ = lengths.next_level(plan, 0.01, texts, (tokens,), KEY)
    assert kept == [1]
    grams = [f"{words[p]} {words[s]}" for p, s in zip(level.prefixes, level.suffixes, strict=True)]
    assert len(grams) == 16
    assert [grams[code] for code in texts.positions.codes if code >= 0] == ["a b", "b c", "c d"]


def test_progress_names_the_lengths_only():
    stages = []
    released(run=Run(progress=lambda stage, done: stages.append(stage)))
    assert dict.fromkeys(stages) == dict.fromkeys(
        ["reading", "grouping", "selecting length 1", "selecting length 2", "selecting length 3", "writing"]
    )


# --- tokenisers ----------------------------------------------------------------------------------------------
def tokens_of(text, tokenizer, **options):
    _, (counts, offsets, data) = documents(pa.array([text]), Splitting(tokenizer, **options))
    raw = data.tobytes()
    assert counts.tolist() == [len(offsets) - 1]
    return [raw[start:stop].decode() for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]


def test_whitespace_splits_where_python_does():
    space = "".join(chr(code) for code in range(0x110000) if chr(code).isspace())
    assert tokens_of(f"  Don't{space}stop!\u200bnow ", Tokenizer.WHITESPACE) == ["Don't", "stop!\u200bnow"]


@pytest.mark.parametrize("tokenizer", [Tokenizer.WORDS, Tokenizer.WHITESPACE, str.split])
def test_urls_are_dropped_when_asked(tokenizer):
    text = "see https://example.org/a?b=c now WWW.Example.com or ftp://x.y done"
    assert tokens_of(text, tokenizer, drop_urls=True) == ["see", "now", "or", "done"]
    assert len(tokens_of(text, tokenizer)) > 4


def test_sentences_end_at_marks_and_lines():
    texts = pa.array(['One two. Three! 3.5 "Four?" five\nsix', "東京。大阪", None, ""])
    parents, (counts, _, _) = documents(texts, Splitting(Tokenizer.WHITESPACE, sentences=True))
    assert parents.tolist() == [0, 0, 0, 0, 0, 1, 1, 2, 3]
    assert counts.tolist() == [2, 1, 2, 1, 1, 1, 1, 0, 0]


def test_a_function_is_a_tokeniser_and_its_tokens_are_normalised():
    texts = [(f"user{i}", "Caf\u0065\u0301-LATTE") for i in range(400)]
    release = released(texts, item=Words(tokenizer=lambda text: text.split("-")))
    assert release.of_length(1) == ("café", "latte")
    exact = released(texts, item=Words(tokenizer=lambda text: text.split("-")), normalize="exact")
    assert set(exact.of_length(1)) == {"LATTE", "Cafe\u0301"}


def test_a_function_may_not_return_tokens_with_spaces_or_leak_by_its_errors():
    with pytest.raises(BadParameter, match="white space"):
        released(item=Words(tokenizer=lambda text: [text]))
    with pytest.raises(BadParameter, match="KeyError") as caught:
        released(item=Words(tokenizer=lambda text: {}[text]))
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_treebank_splits_as_nltk_does():
    nltk = pytest.importorskip("nltk", reason="the extra 'text' is not installed")
    assert nltk.__version__
    assert tokens_of("I can't stop, really.", Tokenizer.TREEBANK) == ["I", "ca", "n't", "stop", ",", "really", "."]


def test_icu_finds_words_without_spaces():
    pytest.importorskip("icu4py", reason="the extra 'icu' is not installed")
    assert tokens_of("東京に行きました。", Tokenizer.ICU, locale="ja")[:2] == ["東京", "に"]


@pytest.mark.parametrize(("tokenizer", "library"), [("treebank", "nltk.tokenize"), ("icu", "icu4py.breakers")])
def test_a_missing_library_is_named_before_any_data_is_read(tokenizer, library, monkeypatch):
    from dpunion.text import splitting

    splitting.treebank.cache_clear()
    splitting.icu.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)

    def unread():
        raise AssertionError("the data was read")
        yield

    with pytest.raises(BadParameter, match="pip install"):
        released(unread(), item=Words(tokenizer=tokenizer))


def test_unknown_tokenisers_are_refused():
    with pytest.raises(BadParameter, match="words, whitespace"):
        released(item=Words(tokenizer="sentencepiece"))
    with pytest.raises(BadParameter, match="name or a function"):
        check_splitting(Splitting(3))


def test_bad_utf8_is_refused_by_every_tokeniser():
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    for tokenizer in (Tokenizer.WORDS, Tokenizer.WHITESPACE, str.split):
        with pytest.raises(DamagedSource):
            documents(bad, Splitting(tokenizer))


# --- settings and plans --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"longest": 0}, "longest"), ({"longest": 99}, "longest"), ({"spurious_rate": 0.0}, "spurious_rate"),
        ({"spurious_rate": math.nan}, "spurious_rate"), ({"share_ratio": 0.0}, "share_ratio"),
        ({"first": "policy-laplace"}, "'first'"), ({"first": "dp-sips"}, "'first'"),
        ({"later": "count-gaussian"}, "'later'"),
        ({"longest": 4, "later": ("funnel", "funnel")}, "2 algorithms for the 3 lengths"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(options, text):
    with pytest.raises(BadParameter, match=text):
        Ngrams(**options)


@pytest.mark.parametrize(("epsilon", "delta"), [(30.0, 1e-12), (30.0, 1e-8), (20.0, 1e-15)])
def test_ngrams_refuse_the_budgets_that_items_refuse(epsilon, delta):
    """127-bit normals are not fine enough for these."""
    for plan in (plan_release, lambda _, budget: plan_ngrams(Ngrams(), budget)):
        with pytest.raises(BadParameter, match="too coarse"):
            plan("funnel", Budget(epsilon, delta))


def test_research_policies_are_refused():
    with pytest.raises(NotPrivate):
        Ngrams(first="greedy")


def test_names_stand_for_algorithms_and_each_length_may_have_its_own():
    settings = Ngrams(longest=3, first="policy-gaussian", later=("funnel", "weighted-gaussian"))
    assert [settings.algorithm_at(k).name for k in (1, 2, 3)] == ["policy-gaussian", "funnel", "weighted-gaussian"]


def test_bad_columns_and_budgets_are_refused(tmp_path):
    pq.write_table(pa.table({"who": ["a"], "body": ["b"]}), tmp_path / "t.parquet")
    with pytest.raises(UnknownColumn):
        released(tmp_path / "t.parquet", user="who", text="bdy")
    with pytest.raises(BadParameter):
        released(epsilon=0.0)


def test_a_plan_round_trips_and_needs_no_data():
    plan = plan_ngrams(CHEAP, Budget(1.0, 1e-6))
    again = type(plan).from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan
    assert [one["length"] for one in plan.to_dict()["lengths"]] == [1, 2, 3]
    with pytest.raises(BadParameter):
        type(plan).from_dict({"epsilon": 1.0})


# --- calibration ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("epsilon", "delta", "published", "exact"), [(3.0, E10, 9.609, 9.01), (1.0, 1e-5, 29.36, 27.53)]
)
def test_exact_composition_lowers_the_threshold_of_two_lengths(epsilon, delta, published, exact):
    shares = geometric_shares(2, 1.0)
    old = compose_unit_norm(epsilon, delta, 100, shares, Calibration.PUBLISHED)
    new = compose_unit_norm(epsilon, delta, 100, shares, Calibration.EXACT)
    assert old.threshold == pytest.approx(published, abs=5e-3)
    assert new.threshold == pytest.approx(exact, abs=2e-2)
    assert new.stddevs[0] < old.stddevs[0]


@pytest.mark.parametrize("ratio", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("longest", [1, 2, 4])
def test_a_composition_stays_within_delta(ratio, longest):
    shares = geometric_shares(longest, ratio)
    assert math.fsum(shares) == pytest.approx(1.0, abs=1e-15)
    found = compose_unit_norm(2.0, 1e-5, 20, shares, Calibration.EXACT)
    others = math.fsum(1.0 / stddev**2 for stddev in found.stddevs[1:])
    used, _ = unit_norm_delta(2.0, found.stddevs[0], found.threshold, 20, 2 * gaussian.CELLS, others)
    assert 0.99e-5 < used <= 1e-5


def test_the_funnel_composition_gives_each_length_its_share():
    shares = geometric_shares(3, 2.0)
    found = compose_funnel(3.0, E10, Funnel(max_items_per_user=50), shares, FUNNEL_GAUSSIAN_SHARE)
    parts = [1.0 / stddev**2 for stddev in found.stddevs]
    assert [part / sum(parts) for part in parts] == pytest.approx(shares, rel=1e-6)
    assert gaussian_delta(3.0, math.sqrt(sum(parts))) < found.delta_used <= E10
    alone = compose_funnel(3.0, E10, Funnel(max_items_per_user=50), (1.0,), FUNNEL_GAUSSIAN_SHARE)
    assert alone.threshold < found.threshold


def test_rounding_only_adds_noise():
    plan = plan_ngrams(CHEAP, Budget(3.0, E10))
    found = compose_unit_norm(3.0, E10, 10, CHEAP.shares, Calibration.EXACT)
    for one, stddev in zip(plan.lengths, found.stddevs, strict=True):
        assert stddev < one.stddev < stddev * 1.01
        assert one.rounding_slack > 0.0


@pytest.mark.parametrize("budget", [(0.075, 1e-5), (0.113, 1e-5), (1.0, 1e-6), (3.0, E10)])
@pytest.mark.parametrize("later", [Funnel(), Ngrams().later[0]])
def test_rounding_is_paid_for_at_every_threshold_on_candidates(budget, later):
    """A Funnel with a lower threshold, for a larger part of candidates that were released, can have higher targets."""
    settings = Ngrams(longest=3, later=later)
    plan = plan_ngrams(settings, Budget(*budget))
    for one in plan.lengths[1:]:
        for tail in settings.spurious_rate * np.geomspace(1e-9, 1.0, 12):
            threshold, _ = lengths.threshold_for(one, float(tail))
            base = 1.0 + one.rounding_slack  # the plan has raised its noise, and so the threshold, by the slack
            assert funnel_slack(one.stddev / base, threshold / base, one.algorithm) <= one.rounding_slack


def test_the_published_constants_split_delta_in_halves():
    published = WeightedGaussian(calibration="published")
    plan = plan_ngrams(Ngrams(first=published, later=(published,)), Budget(3.0, E10))
    base = gaussian.gaussian_stddev(3.0, E10 / 2.0, 1.0)
    assert plan.lengths[2].stddev == pytest.approx(base * math.sqrt(3.0), rel=1e-4)
    assert plan.first.threshold == pytest.approx(11.746, abs=1e-2)


def test_spurious_tails_follow_the_paper():
    assert spurious_tail(0.01, 10, 1000) == pytest.approx(1e-4)
    assert spurious_tail(0.01, 10, 5) == 0.01


def test_results_are_functions_of_the_released_ngrams():
    """|V_2| and the expected spurious number can be computed by whoever reads the release."""
    release = released()
    words, bigrams = release.of_length(1), release.of_length(2)
    second, third = release.results[1], release.results[2]
    assert second.candidates == len(words) ** 2
    pairs = [(a.split(" "), b.split(" ")) for a in bigrams for b in bigrams]
    assert third.candidates == sum(a[1] == b[0] for a, b in pairs)
    rate = CHEAP.spurious_rate
    assert second.spurious == pytest.approx(rate * min(1.0, len(words) / second.candidates) * second.candidates)


# --- the release ---------------------------------------------------------------------------------------------
def test_a_release_round_trips():
    release = released()
    assert Release.from_json(release.to_json()) == release
    for text in ("", "{}", json.dumps(release.to_dict() | {"ngrams": [["a"]]})):
        with pytest.raises(BadParameter):
            Release.from_json(text)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv", ".jsonl", ".txt", ".json"])
def test_files_hold_the_ngrams_and_nothing_of_anybody(suffix, tmp_path):
    release = released()
    path = release.write(tmp_path / f"ngrams{suffix}")
    raw = path.read_bytes()
    assert b"canary" not in raw
    assert b"secret" not in raw
    if suffix == ".parquet":
        table = pq.read_table(path)
        assert table.column_names == ["item", "length"]
        assert list(zip(*table.to_pydict().values(), strict=True)) == list(release.rows())
    if suffix == ".csv":
        assert raw.splitlines()[0] == b"item,length"
        assert b"the quick,2" in raw.splitlines()
    with pytest.raises(CannotWrite):
        release.write(path)


def test_the_only_number_beside_an_ngram_is_its_length():
    release = released()
    assert release.header == ("item", "length")
    assert [length for _, length in release.rows()] == [len(text.split(" ")) for text, _ in release.rows()]
    assert {length for _, length in release.rows()} >= {1, 2}


def test_the_statement_says_what_may_be_spurious():
    release = dataclasses.replace(released(), guaranteed=True)
    text = release.statement
    assert f"at most {release.results[1].spurious:.3g} of {release.results[1].released} at length 2" in text
    assert "written by nobody" in text
    assert "Every part of a listed n-gram is listed too." in text
    words = dataclasses.replace(released(algorithm=Ngrams(longest=1, first=WeightedGaussian())), guaranteed=True)
    assert "all texts of one person" in words.statement
    assert "spurious" not in words.statement


def test_places_of_ngrams_are_int32():
    assert np.iinfo(np.int32).max == streams.MOST_PLACES - 1


@pytest.mark.parametrize("count", [100, 2048, 2049])
def test_more_ngrams_than_the_places_of_a_table_are_refused(count, monkeypatch):
    monkeypatch.setattr(streams, "MOST_PLACES", streams.SMALLEST_TABLE)
    grams = np.append(np.arange(count + 1, dtype=np.int32), np.int32(-1))
    if 2 * count <= streams.SMALLEST_TABLE:
        assert len(streams.pair_grams(grams, KEY, 2)) == count
    else:
        with pytest.raises(BadSource, match="more than 2048 distinct n-grams of one length, more than one run"):
            streams.pair_grams(grams, KEY, 2)


@pytest.mark.parametrize("most", [5, 4])
def test_more_ngrams_of_all_lengths_than_numbers_are_refused(most, monkeypatch):
    """The text has three words and two pairs of them."""
    monkeypatch.setattr(streams, "MAX_ITEMS", most)
    stream = read_tokens([(pa.array(["u"]), pa.array(["a b c"]))], KEY, Splitting(), Normalization.NFC)
    if most == 5:
        codes, _ = streams.lay_out_lengths(stream, KEY, 1, 2, 1)
        assert max(codes) == 4
    else:
        with pytest.raises(BadSource, match="more than 4 distinct n-grams, more than one run supports"):
            streams.lay_out_lengths(stream, KEY, 1, 2, 1)


def test_sensitive_objects_show_nothing():
    from dpunion.engines.local.texts import LocalTexts
    from dpunion.ngrams.lengths import Positions
    from dpunion.sets.streams import TokenStream

    assert repr(Positions(np.arange(2), np.arange(3, dtype=np.int32))) == "Positions(<sensitive>)"
    stream = TokenStream(np.arange(2), np.arange(3, dtype=np.int32), None, None)
    assert repr(stream) == "TokenStream(<sensitive>)"
    assert repr(LocalTexts(stream, KEY)) == "LocalTexts(<sensitive>)"


def test_texts_are_used_up_only_where_nobody_wants_them_again():
    from dpunion.engines.local.texts import LocalTexts

    plan = dpunion.plan(Ngrams(longest=2, first=WeightedGaussian()), epsilon=1.0, delta=1e-6)
    batch = (pa.array(["u", "v"]), pa.array(["a b a", "b a"]))
    stream = read_tokens([batch], KEY, Splitting(), Normalization.NFC)
    before = stream.tokens.copy()
    kept = LocalTexts(stream, KEY)
    level, _ = kept.first(plan.first)
    assert kept.positions.codes is not stream.tokens
    assert stream.tokens.tolist() == before.tolist()
    assert len(kept.holdings((level,)).offsets) == 3
    used = LocalTexts(stream, KEY, used_up=True)
    used.first(plan.first)
    assert used.positions.codes is stream.tokens
    with pytest.raises(InternalError, match="used up"):
        used.holdings((level,))


def test_a_funnel_for_later_lengths_keeps_its_parameters():
    settings = Ngrams(longest=2, later=Funnel(max_items_per_user=7, rounds=2))
    assert Ngrams.from_dict(settings.to_dict()) == settings
