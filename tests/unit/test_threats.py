"""The threat table: docs/sharp-edges.md has 42 rows, and each names the tests that fail without what it says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "sharp-edges.md"
THREATS = 42


def threats():
    """Return {number: (severity, pitfall, handling, [(file, name)])} of the document's table."""
    rows = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].isdigit():
            tests = [tuple(name.split("::")) for name in re.findall(r"`([^`]+)`", cells[4])]
            assert int(cells[0]) not in rows
            rows[int(cells[0])] = (*cells[1:4], tests)
    return rows


TABLE = threats()
OUT_OF_SCOPE = {number for number, row in TABLE.items() if row[2].startswith("**Out of scope**")}


def defined(path):
    """Return the names of the tests in a file, and of the state machines that are run as tests."""
    parsed = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    machines = {ast.unparse(node.value.value) for node in parsed.body if is_test_case(node)}
    return {node.name for node in parsed.body if isinstance(node, ast.FunctionDef)} | machines


def is_test_case(node):
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "TestCase"


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
    for path, name in tests:
        assert name in defined(path), f"{path} has no {name}"


def test_a_wrong_reference_would_be_found():
    assert "test_bad_csv" in defined("tests/faults/test_bad_input.py")
    assert "test_good_csv" not in defined("tests/faults/test_bad_input.py")
    assert "LedgerMachine" in defined("tests/property/test_ledger_stateful.py")


def test_what_is_out_of_scope_is_said_where_users_look():
    assert sorted(OUT_OF_SCOPE) == [42]
    assert "running time, memory use" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert "running time or memory" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
