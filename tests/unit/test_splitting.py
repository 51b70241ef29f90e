"""Which words of a text count: case, stop words, lengths, languages; and new text split in the same way."""

import json
import tomllib

import pytest

import dpunion
from dpunion import BadParameter, Ngrams, Words, tokenize
from dpunion.errors import BadSource, CannotWrite, SourceNotFound
from dpunion.requests import Request
from dpunion.text.splitting import UNSPACED, Splitting, Tokenizer
from dpunion.text.words import Normalization
from running import run_cli

TEXT = "The quick Fox and the lazy DOG"
PEOPLE = [(f"u{number}", TEXT) for number in range(400)]
BUDGET = {"epsilon": 5.0, "delta": 1e-6, "unsafe_test_key": 3}


def released(words, rows=PEOPLE, **options):
    return dpunion.release(rows, item=words, **BUDGET | options)


# --- case ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tokenizer", ["words", "whitespace", "treebank", "icu", str.split])
@pytest.mark.parametrize("algorithm", [None, Ngrams(longest=1)])
def test_normalize_applies_to_every_tokenizer(tokenizer, algorithm):
    cased = {"The", "quick", "Fox", "and", "the", "lazy", "DOG"}
    for normalize, expected in (
        (None, {"the", "quick", "fox", "and", "lazy", "dog"}),
        ("nfc", cased),
        ("exact", cased),
    ):
        made = released(Words(tokenizer=tokenizer), algorithm=algorithm, normalize=normalize)
        assert set(made.items) == expected
        assert set(tokenize(TEXT, tokenizer=tokenizer, normalize=normalize)) == expected


def test_ready_items_keep_their_case_by_default():
    assert Request.of([], item="word").normalization is Normalization.NFC
    assert Request.of([], text="body").normalization is Normalization.NFC_LOWER
    assert dpunion.release([(one, "The") for one, _ in PEOPLE], **BUDGET).items == ("The",)


def test_a_known_list_is_spelled_with_capitals_where_the_words_are():
    assert "Fox" not in released(Words(), known=["Fox"], normalize="nfc").items
    assert "Fox" in released(Words(), known=["fox"], normalize="nfc").items
    assert "fox" not in released(Words(), known=["FOX"]).items


# --- what is left out ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("tokenizer", ["words", "whitespace", "icu", str.split])
def test_stop_words_and_short_words_are_left_out_before_ngrams_are_made(tokenizer):
    words = Words(tokenizer=tokenizer, lengths="1-2", stop_words=["AND", "the"], min_length=4)
    expected = {"quick", "lazy", "quick lazy"}
    assert set(released(words).items) == expected
    one_length = Words(tokenizer=tokenizer, stop_words=["AND", "the"], min_length=4)
    made = released(one_length, algorithm=Ngrams(longest=2, spurious_rate=1e-6), counts=True)
    assert set(made.items) == expected
    assert set(released(one_length).items) == {"quick", "lazy"}
    assert tokenize(TEXT, tokenizer=tokenizer, stop_words=["AND", "the"], min_length=4) == ["quick", "lazy"]


def test_stop_words_are_spelled_as_the_words_are():
    assert tokenize("Cafe\u0301 THE the", stop_words=["cafe\u0301", "The"]) == []
    assert tokenize("Cafe\u0301 THE the", stop_words=["caf\u00e9", "The"], normalize="nfc") == [
        "Caf\u00e9",
        "THE",
        "the",
    ]
    assert tokenize("don't don’t", stop_words=["don't"]) == ["don’t"]
    assert tokenize("two words", stop_words=["two words"]) == ["two", "words"]


def test_the_length_is_in_characters():
    assert tokenize("a né nee 漢字 漢字漢", min_length=3) == ["nee", "漢字漢"]
    assert tokenize("ne\u0301 ab", min_length=3, normalize="exact") == ["ne\u0301"]


def test_words_left_out_do_not_count_toward_the_limit():
    rows = [(f"u{number}", " ".join(f"stop{i}" for i in range(200)) + " rare") for number in range(60)]
    one_item = dpunion.WeightedGaussian(max_items_per_user=1)
    assert "rare" not in released(Words(), rows, algorithm=one_item).items
    for lengths in ("1", "1-2"):
        stop_words = [f"stop{i}" for i in range(200)]
        assert released(Words(lengths=lengths, stop_words=stop_words), rows, algorithm=one_item).items == ("rare",)


def test_words_left_out_count_for_nobody():
    rows = [*PEOPLE, *((f"v{number}", "the the") for number in range(5000))]
    everybody = released(Words(stop_words=["the"]), rows, counts=True).totals.everybody
    assert everybody.high < 3000
    assert released(Words(), rows, counts=True).totals.everybody.low > 3000


def test_stop_words_come_from_files_and_lists(tmp_path):
    (tmp_path / "stop.txt").write_text("the\nAND\n", "utf-8")
    (tmp_path / "stop.csv").write_text("item\nthe\nand\n", "utf-8")
    lists = [
        tmp_path / "stop.txt",
        str(tmp_path / "stop.csv"),
        {"the", "and"},
        released(Words(stop_words=TEXT.split()[:0])),
    ]
    for stop_words in lists[:3]:
        assert tokenize(TEXT, stop_words=stop_words) == ["quick", "fox", "lazy", "dog"]
    assert tokenize(TEXT, stop_words=lists[3]) == []
    with pytest.raises(SourceNotFound, match="list of stop words"):
        tokenize(TEXT, stop_words=tmp_path / "none.txt")
    with pytest.raises(BadSource, match="list of stop words"):
        tokenize(TEXT, stop_words=[1])


@pytest.mark.parametrize("least", [0, -1, 1.5, True, "3", 10**6])
def test_bad_lengths_are_refused(least):
    with pytest.raises(BadParameter, match="min_length"):
        released(Words(min_length=least))


def test_the_statement_says_what_was_left_out():
    made = dpunion.release(PEOPLE, item=Words(stop_words=["the", "and"], min_length=2), epsilon=5.0, delta=1e-6)
    said = "the words of a public list (2) and words of fewer than 2 characters."
    assert f"Left out first, as if nobody had written them: {said}" in made.statement.splitlines()
    assert Splitting().notes() == ()


# --- languages ----------------------------------------------------------------------------------------------
def test_a_locale_is_for_icu():
    assert tokenize("สวัสดีครับ", tokenizer="icu", locale="th") == ["สวัสดี", "ครับ"]
    with pytest.raises(BadParameter, match="icu"):
        released(Words(locale="th"))


def test_scripts_without_spaces_are_told_by_the_released_list_alone():
    rows = [(f"u{number}", "谢谢你 thanks") for number in range(400)]
    alone = [*PEOPLE, ("w", "谢谢你")]
    assert "icu" in " ".join(released(Words(), rows).notes)
    assert "1 of the 2 listed" in " ".join(released(Words(), rows).notes)
    assert "icu" in " ".join(released(Words(), rows, algorithm=Ngrams(longest=2)).notes)
    assert released(Words(tokenizer="icu"), rows).notes == ()
    assert released(Words(), alone).notes == ()
    assert dpunion.release(rows, **BUDGET).notes == ()


@pytest.mark.parametrize("text", ["漢字", "かな", "カナ", "สวัสดี", "ສະບາຍດີ", "မင်္ဂလာပါ", "សួស្តី", "𠀀"])
def test_scripts_without_spaces_are_known(text):
    assert UNSPACED.search(text)
    assert Splitting(Tokenizer.WHITESPACE).notes_on([text, "a"])


@pytest.mark.parametrize("text", ["word", "Ωμέγα", "слово", "한국어", "नमस्ते", "שלום", "مرحبا", "e\u0301", "გამარჯობა"])
def test_scripts_with_spaces_are_not_taken_for_such(text):
    assert not UNSPACED.search(text)


# --- new text -----------------------------------------------------------------------------------------------
def test_new_text_without_words():
    assert tokenize("") == tokenize("...", tokenizer="words") == []
    for wrong in (None, 3, b"text", ["text"], "lone \ud800"):
        with pytest.raises(BadParameter, match="text"):
            tokenize(wrong)


# --- the command --------------------------------------------------------------------------------------------
def run(*words, code=0):
    result = run_cli(*words, code=code)
    return result.output


@pytest.fixture
def posts(tmp_path):
    lines = [json.dumps({"who": who, "body": body}) for who, body in PEOPLE]
    (tmp_path / "posts.jsonl").write_text("\n".join(lines), "utf-8")
    (tmp_path / "stop.txt").write_text("the\nand\n", "utf-8")
    return tmp_path


def test_the_options_reach_the_release_and_its_record(posts):
    common = ("-u", "who", "-t", "body", "-e", 5, "-d", "1e-6", "--unsafe-test-key", 3)
    options = ("--normalize", "nfc", "--stop-words", posts / "stop.txt", "--min-length", 4)
    run("release", posts / "posts.jsonl", *common, *options, "--out", posts / "a.txt")
    assert (posts / "a.txt").read_text("utf-8").split() == ["lazy", "quick"]
    record = tomllib.loads((posts / "a.txt.private.toml").read_text("utf-8"))
    assert (record["normalize"], record["stop-words"], record["min-length"]) == ("nfc", str(posts / "stop.txt"), 4)
    run("release", posts / "posts.jsonl", "--config", posts / "a.txt.private.toml", "--out", posts / "b.txt")
    assert (posts / "b.txt").read_bytes() == (posts / "a.txt").read_bytes()
    run("ngrams", posts / "posts.jsonl", *common, *options, "--longest", 2, "--out", posts / "n.csv")
    assert "quick lazy,2" in (posts / "n.csv").read_text("utf-8")
    run("release", posts / "posts.jsonl", *common, "--tokenizer", "icu", "--locale", "de", "--out", posts / "c.txt")
    assert "fox" in (posts / "c.txt").read_text("utf-8").split()


def test_options_that_do_not_fit_are_refused(posts):
    common = (posts / "posts.jsonl", "-u", "who", "-e", 5, "-d", "1e-6")
    for options in (("--min-length", 3), ("--stop-words", posts / "stop.txt"), ("--locale", "th")):
        assert f"no column of texts for {options[0]}" in run("release", *common, "-i", "body", *options, code=2)
    assert "icu" in run("release", *common, "-t", "body", "--locale", "th", code=2)
    words = Words("body", stop_words=posts / "stop.txt")
    with pytest.raises(CannotWrite, match="list of stop words"):
        released(words, posts / "posts.jsonl", user="who", out=posts / "stop.txt", run=dpunion.Run(overwrite=True))
    taken = ("-t", "body", "--stop-words", posts / "stop.txt", "--out", posts / "stop.txt", "--force")
    assert "list of stop words" in run("release", *common, *taken, code=4)
