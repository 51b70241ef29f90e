"""A small part of `make torture` (torture.py says what it does), and the power of its checks."""

import argparse

import pytest
import torture
from fuzzing import Case
from torture import Run


@pytest.mark.full
def test_a_part_of_the_torture(tmp_path):
    said = []
    numbers = {"interrupts": 40, "fresh": 6, "kills": 10, "aimed": 12, "fuzz": 300, "spark": 0}
    options = argparse.Namespace(**numbers, postgres=True, seed=7, keep=tmp_path / "kept")
    passed, failed = torture.torture(options, said.append)
    assert failed == 0, "\n".join(said)
    assert passed >= 400


def test_kills_after_the_charge(tmp_path):
    """The charge is exact and the command can be run again as documented; the other test has PostgreSQL too."""
    said = []
    numbers = {"interrupts": 0, "fresh": 0, "kills": 0, "aimed": 6, "fuzz": 0, "spark": 0}
    options = argparse.Namespace(**numbers, postgres=False, seed=3, keep=tmp_path / "kept")
    _, failed = torture.torture(options, said.append)
    assert failed == 0, "\n".join(said)
    kills = [line.split(": ") for line in said if line.startswith("killed ") and torture.BEFORE not in line]
    assert sum(int(number) for _, number in kills) == 6, said


def test_the_exit_codes_are_those_documented():
    assert {0, 2, 3, 4, 5, 130} <= torture.documented_codes()
    assert 1 not in torture.documented_codes()


@pytest.fixture
def place(tmp_path):
    for name in ("out", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "books").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("code", "said", "problem"),
    [
        (None, b"", "it hung"),
        (1, b"Error: ", "exit code 1"),
        (130, b"", "did not say"),
        (130, b"Interrupted.\nTraceback (most recent call last)", "a traceback"),
        (130, b"Interrupted at CanaryUser7", "a private value was printed"),
        (0, b"", "no output"),
    ],
)
def test_the_checks_see_a_bad_run(place, code, said, problem):
    run = Run(code, said, struck=True)
    found = list(torture.check_release(run, place, place / "out" / "released.txt", old=False))
    assert any(problem in each for each in found), found


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("out/released.csv", b"item\npop", "an output of 1 items"),
        ("out/released.parquet", b"PAR1", "a partial output"),
        ("out/.dpunion-x.tmp", b"", "left behind"),
        ("temporary/rows", b"", "temporary files"),
        ("out/released.csv.private.toml", b"CanaryUser7", "a private value in"),
    ],
)
def test_the_checks_see_what_is_left(place, name, content, problem):
    (place / name).write_bytes(content)
    suffix = ".parquet" if name.endswith(".parquet") else ".csv"
    run = Run(130, b"Interrupted.", struck=True)
    found = list(torture.check_release(run, place, place / "out" / f"released{suffix}", old=False))
    assert any(problem in each for each in found), found


def test_the_checks_see_a_lost_interrupt(place):
    target = place / "out" / "released.txt"
    target.write_text("a\nb\nc\n")
    written = target.stat().st_mtime
    for at, lost in ((written - 1, True), (written + 1, False)):
        found = list(torture.check_release(Run(0, b"", True, at), place, target, old=False))
        assert any("lost" in each for each in found) == lost, found


def test_the_checks_see_a_wrong_ledger(place, tmp_path):
    from dpunion.ledger import Amounts, Ledger

    books = torture.Books(tmp_path / "books" / "budget.db")
    target = tmp_path / "out" / "released.txt"
    assert list(books.check(Run(130, b"", struck=True), target)) == []
    assert list(books.check(Run(0, b"", struck=True), target)) == ["a release without a settled charge"]
    target.write_text("popular")
    assert list(books.check(Run(130, b"", struck=True), target)) == ["an output without a charge"]
    for number in (1, 2):
        Ledger.open(books.address).reserve("people", Amounts(epsilon=number), f"release {number}")
    assert "the new charge is not that of one release" in list(books.check(Run(130, b"", struck=True), target))


@pytest.mark.parametrize(
    ("told", "phase", "problem"),
    [
        (["reserving", "reserved"], torture.BEFORE, "is lost"),
        (["reserving", "reserved", "settling", "settled"], torture.BETWEEN, "is open"),
        ([], torture.BETWEEN, "nobody asked for"),
        (["reserving"], torture.BEFORE, None),
        (["reserving"], torture.BETWEEN, None),
        (["reserving", "reserved", "settling"], torture.AFTER, None),
    ],
)
def test_the_checks_compare_the_ledger_with_the_printed_charge(told, phase, problem):
    found = list(torture.check_words(told, phase))
    assert [problem in each for each in found] == [True] if problem else not found


def test_the_checks_see_a_refusal_that_is_none(place):
    from dpunion.ledger import Amounts, Ledger

    target = place / "out" / "released.txt"
    books = torture.Books(place / "books" / "budget.db")
    refused = Run(5, b"Error: ", struck=False)
    assert list(torture.check_refused(5, refused, None, books, place, target)) == []
    assert list(torture.check_refused(6, refused, None, books, place, target)) == ["exit code 5 and not 6"]
    Ledger.open(books.address).reserve("people", Amounts(epsilon=torture.CHARGE), "release")
    target.write_text("popular")
    found = list(torture.check_refused(5, refused, None, books, place, target))
    assert found == ["the output has changed", "charged in silence"]
    assert books.phase == torture.BETWEEN


@pytest.mark.parametrize(
    ("code", "said", "problem"),
    [
        (1, b"Error: ", "exit code 1"), (77, b"Error: ", "exit code 77"), (3, b"", "no word"), (0, b"", "no output"),
        (3, b"Error: CanaryUser7", "a private value"),
    ],
)  # fmt: skip
def test_the_checks_see_a_bad_end_of_damaged_input(tmp_path, code, said, problem):
    found = list(torture.check_case(Case("a", (), (0, 3)), Run(code, said, False), tmp_path, {0, 3}))
    assert any(problem in each for each in found), found
