"""A job of an engineer for language: a vocabulary with counts, for a vectorizer and a tokenizer."""

import json
import re

import polars as pl
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transcripts import Shell

import dpunion

AUTHORS = 3_000
# Each word, and of how many authors one writes it.
EVERY = {"the": 1, "can't": 2, "kernel": 3, "naïve": 5, "boot": 8}
NOTE = "NAÏVE me: I can't boot the new Kernel!"
TOKENS = ["naïve", "[UNK]", "[UNK]", "can't", "boot", "the", "[UNK]", "kernel"]
RELEASE = """
$ dpunion release posts.jsonl --user author --text body -e 1 -d 1e-6 --counts \\
    --title "Words of the forum" --out words.csv --out words.json
...Released 5 items to words.csv and words.json.
This list is (1, 1e-06)-differentially private for adding or removing one user (all rows of one person). --statement ...
About 3,000 (2,700 to 3,300) people have at least one item; ...
...
$ head -2 words.csv
item,people,low,high
the,3000,2900,3100
"""
NEXT_MONTH = """
$ dpunion release more.jsonl --user author --text body -e 1 -d 1e-6 --known words.csv --out new.txt
...Released 1 item to new.txt.
...
$ cat new.txt
wayland
$ dpunion report words.json --out words.html
...
"""


def write_posts(path, every):
    """Write two posts of each author, in mixed case, with a word that is nobody else's."""
    with path.open("w", encoding="utf-8") as file:
        for author in range(AUTHORS):
            words = [word for word, step in every.items() if author % step == 0]
            for body in (" ".join(words).upper() + "!", f"{', '.join(words)} secret{author}?"):
                file.write(json.dumps({"author": f"u{author}", "body": body}) + "\n")


@pytest.fixture
def shell(tmp_path):
    write_posts(tmp_path / "posts.jsonl", EVERY)
    write_posts(tmp_path / "more.jsonl", {**EVERY, "wayland": 4})
    return Shell(tmp_path)


def test_from_texts_to_a_vectorizer_and_a_tokenizer(shell):
    shell.follow(RELEASE)
    release = dpunion.Release.from_json(shell.text("words.json"))
    check_collection(release)
    check_vectorizer(release)
    check_tokenizers(release)
    shell.follow(NEXT_MONTH)
    page = shell.text("words.html")
    assert "Words of the forum" in page
    assert re.search(r"secret\d", page) is None, "a word of one author"


def check_collection(release):
    """The release is iterated, asked and taken as a frame, and has no word of one person."""
    assert list(release) == list(EVERY), "the most popular first"
    assert ("kernel" in release, "Kernel" in release, "secret7" in release) == (True, False, False)
    assert (len(release), release[0], tuple(release[-2:])) == (5, "the", ("naïve", "boot"))
    for frame in (release.to_pandas(), pl.DataFrame(release), pa.table(release)):
        columns = frame.column_names if isinstance(frame, pa.Table) else list(frame.columns)
        assert columns == ["item", "people", "low", "high"]
        assert len(frame) == 5
    for word, people in release.people.items():
        holders = AUTHORS / EVERY[word]
        assert people == pytest.approx(holders, rel=0.1, abs=300), word


def check_vectorizer(release):
    """scikit-learn takes the release as its vocabulary, and counts new text in the same words."""
    vectorizer = CountVectorizer(vocabulary=release, tokenizer=dpunion.tokenize, token_pattern=None, lowercase=False)
    rows = vectorizer.transform([NOTE, "nothing of it"]).toarray()
    assert list(vectorizer.get_feature_names_out()) == list(release)
    assert rows.tolist() == [[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]


def check_tokenizers(release):
    """Whole words are found as the release spells them; byte pairs are learnt from numbers of people."""
    numbers = {"[UNK]": 0} | {word: number for number, word in enumerate(release, 1)}
    whole = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    assert whole.encode(dpunion.tokenize(NOTE), is_pretokenized=True).tokens == TOKENS

    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer, pairs.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    pairs.train_from_iterator(([word] * people for word, people in release.people.items()), trainer)
    assert pairs.encode("kernel").tokens == ["kernel"]
    assert len(pairs.encode("colonel").tokens) > 1
    assert pairs.decode(pairs.encode("kernels, naïve").ids) == "kernels, naïve"
