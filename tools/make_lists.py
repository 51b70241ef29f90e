"""Write src/dpunion/data/lists: public lists of codes and names, from Unicode CLDR as the package babel has it.

Run it after babel's version in requirements-dev.lock has changed: .venv/bin/python tools/make_lists.py
Then correct the numbers of items and the version of CLDR in src/dpunion/samples.py. It downloads nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import babel
from babel.core import get_cldr_version, get_global

TARGET = Path(__file__).parents[1] / "src" / "dpunion" / "data" / "lists"
LICENCE = Path(babel.__file__).parent / "locale-data" / "LICENSE.unicode"
# Codes of two letters that CLDR names and ISO 3166-1 has not assigned: reserved ones, and those for private use.
NOT_COUNTRIES = {"AC", "CP", "CQ", "DG", "EA", "EU", "EZ", "IC", "TA", "UN"} | {"QO", "XA", "XB", "XK", "ZZ"}
# Several, undetermined or no languages, and a code that ISO 639 has withdrawn.
NOT_LANGUAGES = {"mul", "und", "zxx", "sh"}


def make_lists() -> dict[str, list[str]]:
    """Return the items of each list, sorted by code point."""
    english = babel.Locale("en")
    countries = [code for code in english.territories if len(code) == 2 and code not in NOT_COUNTRIES]
    languages = [code for code in english.languages if code.isalpha() and code not in NOT_LANGUAGES]
    # What a territory uses as legal tender to this day: no old currencies, funds, metals or codes for tests.
    uses = [use for territory in get_global("territory_currencies").values() for use in territory]
    lists = {
        "countries": countries,
        "country-names": [english.territories[code] for code in countries],
        "languages": languages,
        "language-names": [english.languages[code] for code in languages],
        "currencies": [code for code, _, end, is_tender in uses if end is None and is_tender],
    }
    return {name: sorted(set(items)) for name, items in lists.items()}


def main() -> None:
    """Write the lists and their licence, into another folder if one is given."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.mkdir(parents=True, exist_ok=True)
    for name, items in make_lists().items():
        (target / f"{name}.txt").write_text("".join(f"{item}\n" for item in items), encoding="utf-8")
        print(f"{name}: {len(items)} items")
    (target / "LICENSE-CLDR.txt").write_bytes(LICENCE.read_bytes())
    print(f"CLDR {get_cldr_version()}")


if __name__ == "__main__":
    main()
