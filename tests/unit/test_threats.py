"""The threats: docs/sharp-edges.md has 42 of them, and tests/claims.toml names the tests that fail without each."""

import re
from pathlib import Path

import pytest

from claims import CLAIMS, missing

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "sharp-edges.md"
THREATS = 42


def threats():
    """Return {number: (severity, pitfall, handling, tests)} of the document's threats."""
    rows, tests = {}, CLAIMS["docs/sharp-edges.md"]
    for paragraph in DOCUMENT.read_text(encoding="utf-8").split("\n\n"):
        found = re.fullmatch(r"\*\*(\d+)\. (.+?)\*\* \*(\w+)\.\* (.+)", " ".join(paragraph.split()))
        if found:
            assert int(found[1]) not in rows
            rows[int(found[1])] = (found[3], found[2], found[4], tests[found[1]])
    assert sorted(map(int, tests)) == sorted(rows)
    return rows


TABLE = threats()
OUT_OF_SCOPE = {number for number, row in TABLE.items() if row[2].startswith("**Out of scope**")}


def test_every_row_is_covered_or_explained(record_property):
    """Must show: how many rows a test covers, how many are out of scope with a reason, and none unexplained."""
    covered = {number for number, row in TABLE.items() if row[3]}
    unexplained = set(range(1, THREATS + 1)) - covered - OUT_OF_SCOPE
    counts = {"covered": len(covered), "out of scope": len(OUT_OF_SCOPE), "unexplained": len(unexplained)}
    for name, count in counts.items():
        record_property(name, count)
    assert counts == {"covered": 41, "out of scope": 1, "unexplained": 0}, unexplained
    assert not covered & OUT_OF_SCOPE


def test_rows_are_numbered():
    assert list(TABLE) == list(range(1, THREATS + 1))


@pytest.mark.parametrize("number", sorted(TABLE))
def test_the_row_is_complete(number):
    severity, pitfall, handling, tests = TABLE[number]
    assert severity in {"Critical", "Theoretical", "Negligible"}
    assert pitfall.endswith(".")
    assert len(handling) > 20
    if number in OUT_OF_SCOPE:
        assert len(handling) > 100, "a reason"
        assert tests == []
    else:
        assert len(tests) >= 2
    assert missing(tests) == []


def test_a_wrong_reference_would_be_found():
    there = [
        "tests/faults/test_bad_input.py::test_bad_csv_is_refused_without_its_text",
        "tests/property/test_ledger_stateful.py::LedgerMachine",
    ]
    wrong = ["tests/faults/test_bad_input.py::test_good_csv", "tests/faults/test_nothing.py::test_bad_csv"]
    assert len(missing(there + wrong)) == len(wrong)


def test_what_is_out_of_scope_is_said_where_users_look():
    assert sorted(OUT_OF_SCOPE) == [42]
    assert "running time, memory use" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
