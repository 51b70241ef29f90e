"""The data that comes with dpunion: a sample, and public lists of items to use as candidates."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from dpunion.checks import nearest
from dpunion.errors import BadParameter, import_library

FREQUENT_WORDS = 50_000


def debian_depends() -> Path:
    """Return the path of a Parquet file: which Debian package (`user`) depends on which (`item`)."""
    return _data_file("debian_depends.parquet")


@dataclass(frozen=True, slots=True)
class PublicList:
    """A public list that has a name.

    language: the code under which wordfreq has the words; empty for a list that is a file of dpunion.
    """

    name: str
    what: str
    items: int
    licence: str
    origin: str
    language: str = ""

    def read(self) -> Path | tuple[str, ...]:
        """Return the file with one item per line, or the words, the most frequent first."""
        if not self.language:
            return _data_file("lists", f"{self.name}.txt")
        wordfreq = import_library("wordfreq", f"The list {self.name!r} needs wordfreq", "'dpunion[words]'")
        return tuple(wordfreq.top_n_list(self.language, self.items))


def _of_cldr(name: str, what: str, items: int) -> PublicList:
    return PublicList(name, what, items, "Unicode-3.0", "Unicode CLDR 47")


def _of_wordfreq(language: str, name: str, spelling: str = "in lower case") -> PublicList:
    what = f"the most frequent {name.capitalize()} words, {spelling}"
    return PublicList(name, what, FREQUENT_WORDS, "CC BY-SA 4.0", "wordfreq, pip install 'dpunion[words]'", language)


LISTS: dict[str, PublicList] = {
    one.name: one
    for one in (
        _of_cldr("countries", "codes of countries and territories (ISO 3166-1 alpha-2)", 249),
        _of_cldr("country-names", "the English names of these countries and territories", 249),
        _of_cldr("languages", "codes of languages (ISO 639: two letters, or three where there are no two)", 632),
        _of_cldr("language-names", "the English names of these languages", 632),
        _of_cldr("currencies", "codes of currencies that are legal tender (ISO 4217)", 154),
        _of_wordfreq("ar", "arabic", "without vowel marks"),
        _of_wordfreq("nl", "dutch"),
        _of_wordfreq("en", "english"),
        _of_wordfreq("fr", "french"),
        _of_wordfreq("de", "german", "in lower case and with ss for ß"),
        _of_wordfreq("it", "italian"),
        _of_wordfreq("pl", "polish"),
        _of_wordfreq("pt", "portuguese"),
        _of_wordfreq("ru", "russian"),
        _of_wordfreq("es", "spanish"),
    )
}
"""The public lists by name. `tools/make_lists.py` writes the files of those from CLDR."""


def named_list(source: Any) -> Any:
    """Return the list of this name as the reader of public lists takes it; return any other source unchanged.

    A name of LISTS always means that list: a file of the same name has to be written as ./english.
    """
    if not isinstance(source, str) or source in LISTS:
        return LISTS[source].read() if isinstance(source, str) else source
    is_path = source != Path(source).stem
    near = None if is_path else nearest(source, LISTS)
    if near is not None and not Path(source).exists():
        raise BadParameter(f"There is no list {source!r}.", f"Did you mean {near!r}? `dpunion lists` shows all names.")
    return source


def describe_lists() -> str:
    """Return a table for a person to read: each origin with its licence, and below it one line for each list."""
    width, lines = max(map(len, LISTS)), []
    for (origin, licence), lists in groupby(LISTS.values(), lambda one: (one.origin, one.licence)):
        lines += [f"From {origin} (licence {licence}):"]
        lines += [f"  {one.name:{width}}  {one.items:6,}  {one.what}" for one in lists]
    return "\n".join(lines)


def _data_file(*parts: str) -> Path:
    return Path(str(resources.files("dpunion").joinpath("data", *parts)))
