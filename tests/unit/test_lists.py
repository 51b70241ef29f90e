"""The public lists that have a name: what is in them, where they come from, and what is said without wordfreq."""

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpunion.cli import app
from dpunion.errors import BadParameter
from dpunion.reading.known import read_known
from dpunion.samples import LISTS, describe_lists, named_list
from running import run_program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "dpunion" / "data" / "lists"
FILES = [name for name, one in LISTS.items() if not one.language]
WORDS = [name for name, one in LISTS.items() if one.language]


def lines(name):
    return named_list(name).read_text("utf-8").removesuffix("\n").split("\n")


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_sorted_without_repeats_and_as_long_as_promised(name):
    items = lines(name)
    assert items == sorted(set(items))
    assert len(items) == LISTS[name].items > 0
    assert all(item and item == item.strip() for item in items)
    assert set(read_known(named_list(name)).items) == set(items)


def test_every_file_has_a_name_and_their_licence_is_with_them():
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.txt" for name in FILES} | {"LICENSE-CLDR.txt"}
    licence = (FOLDER / "LICENSE-CLDR.txt").read_text("utf-8")
    assert licence.startswith("UNICODE LICENSE V3\n")
    assert "SPDX-License-Identifier: Unicode-3.0" in licence


@pytest.mark.parametrize(
    ("name", "shape", "inside", "outside"),
    [
        ("countries", "[A-Z]{2}", "DE GB TW US", "AN EU SU UK UN XA XK YU ZZ"),
        ("languages", "[a-z]{2,3}", "de en haw tl tw zh", "in iw mul sh und zxx"),
        ("currencies", "[A-Z]{3}", "CHF EUR USD XAF XCG", "ANG CHE CNH DEM HRK XAU XTS XXX ZWL"),
    ],
)
def test_codes_are_current_ones(name, shape, inside, outside):
    codes = set(lines(name))
    assert all(re.fullmatch(shape, code) for code in codes)
    assert set(inside.split()) <= codes
    assert not set(outside.split()) & codes


def test_names_belong_to_the_codes():
    assert {"Côte d’Ivoire", "Germany", "Türkiye"} <= set(lines("country-names"))
    assert {"German", "Hawaiian", "Norwegian Bokmål"} <= set(lines("language-names"))
    assert not {"Eurozone", "Kosovo", "World"} & set(lines("country-names"))
    assert not {"Multiple languages", "Unknown language", "Austrian German"} & set(lines("language-names"))


def test_the_script_writes_the_same_files_again(tmp_path):
    pytest.importorskip("babel", reason="babel is not installed")
    found = importlib.metadata.version("babel")
    if f"babel=={found}" not in (ROOT / "requirements-dev.lock").read_text().splitlines():
        pytest.skip(f"babel {found} is not the version of requirements-dev.lock, so its CLDR may be another")
    command = [sys.executable, ROOT / "tools" / "make_lists.py", tmp_path]
    done = run_program(*command)
    assert done.returncode == 0, done.stderr
    assert {one.origin for one in map(LISTS.get, FILES)} == {f"Unicode {done.stdout.splitlines()[-1]}"}
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in FOLDER.iterdir()}


@pytest.mark.parametrize("name", WORDS)
def test_words_are_fifty_thousand_different_ones(name):
    pytest.importorskip("wordfreq", reason="wordfreq is not installed: pip install 'dpunion[words]'")
    words = named_list(name)
    assert len(words) == len(set(words)) == LISTS[name].items == 50_000
    assert all(isinstance(word, str) and word and word == word.lower() and not re.search(r"\s", word) for word in words)


def test_words_are_as_described():
    pytest.importorskip("wordfreq", reason="wordfreq is not installed: pip install 'dpunion[words]'")
    assert named_list("english")[:3] == ("the", "to", "and")
    german, arabic = (set(named_list(name)) for name in ("german", "arabic"))
    assert "strasse" in german
    assert not any("ß" in word for word in german)
    assert not any(re.search("[\u064b-\u0652]", word) for word in arabic)


@pytest.mark.parametrize("source", ["", "shopping-list", "./english", "words.txt", Path("english"), ("english",), 7])
def test_other_sources_than_names_come_back_unchanged(source):
    assert named_list(source) is source


@pytest.mark.parametrize("name", WORDS)
def test_without_wordfreq_the_error_says_how_to_install_it(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "wordfreq", None)  # as if it were not installed
    with pytest.raises(BadParameter) as refused:
        named_list(name)
    assert str(refused.value) == (
        f"The list {name!r} needs wordfreq, which is not installed. Install it with: pip install 'dpunion[words]'."
    )
    assert refused.value.__context__ is None


def test_files_need_no_other_package(monkeypatch):
    for module in ("babel", "wordfreq"):
        monkeypatch.setitem(sys.modules, module, None)
    assert [len(lines(name)) for name in FILES] == [LISTS[name].items for name in FILES]


def test_the_table_has_every_list_below_its_licence():
    licence, found = "", {}
    printed = CliRunner().invoke(app, ["lists"]).stdout
    assert printed == f"{describe_lists()}\n"
    for row in printed.splitlines():
        if row.startswith("From "):
            licence = re.search(r"\(licence (.+)\):$", row)[1]
        else:
            name, items, _ = row.split(maxsplit=2)
            found[name] = items, licence
    assert found == {
        name: (f"{one.items:,}", "CC BY-SA 4.0" if one.language else "Unicode-3.0") for name, one in LISTS.items()
    }


@pytest.mark.parametrize("name", ["englisch", "English", "curencies"])
def test_a_misspelt_name_is_refused_with_the_nearest(name):
    with pytest.raises(BadParameter, match=r"Did you mean '(english|currencies)'"):
        named_list(name)
