"""Releases that are charged add up: empty ones too, the same one once, those of test keys never."""

import pytest

import dpunion
from dpunion.errors import AlreadyReleased, BudgetExhausted
from dpunion.ledger import Ledger
from dpunion.requests import Charge

OPTIONS = {"epsilon": 1.0, "delta": 1e-4}
COLUMNS = {"user": "u", "item": "v"}


@pytest.fixture
def book(tmp_path):
    opened = Ledger.open(tmp_path / "budget.db", create=True)
    opened.create_dataset("posts", 5, 1e-2)
    return opened


@pytest.fixture
def charge(book, tmp_path):
    return Charge(tmp_path / "budget.db", "posts")


def spent(book):
    return book.overview().accounts[0].spent.epsilon / 10**9


@pytest.mark.parametrize("rows", [[], [("only", "one")], [("a", "")]], ids=["nobody", "one person", "nothing held"])
def test_an_empty_release_is_charged_and_written(tmp_path, book, charge, rows):
    made = dpunion.release(rows, out=tmp_path / "a.txt", charge=charge, epsilon=1.0, delta=1e-12)
    assert made.items == ()
    assert (tmp_path / "a.txt").read_bytes() == b""
    assert spent(book) == 1.0


def test_a_release_with_a_test_key_is_refused_and_costs_nothing(book, charge):
    with pytest.raises(dpunion.NotPrivate):
        dpunion.release([("a", "x")], unsafe_test_key=1, charge=charge, **OPTIONS)
    assert spent(book) == 0.0


def test_the_same_release_names_the_first_or_is_charged_again(tmp_path, book, charge):
    (tmp_path / "a.csv").write_text("u,v\nx,y\n")
    options = {**COLUMNS, **OPTIONS}
    dpunion.release(tmp_path / "a.csv", out=tmp_path / "b.txt", charge=charge, **options)
    with pytest.raises(AlreadyReleased) as caught:
        dpunion.release(tmp_path / "a.csv", charge=charge, **options)
    assert caught.value.outputs[0][0] == str(tmp_path / "b.txt")
    assert spent(book) == 1.0
    dpunion.release(tmp_path / "a.csv", charge=Charge(charge.ledger, "posts", again=True), **options)
    assert spent(book) == 2.0


def test_releases_of_other_files_add_up_until_nothing_is_left(tmp_path, book, charge):
    """Another month is another file and another release of the same people."""
    for month in range(6):
        (tmp_path / f"{month}.csv").write_text("u,v\nx,y\n")
    for month in range(5):
        dpunion.release(tmp_path / f"{month}.csv", charge=charge, **COLUMNS, **OPTIONS)
        assert spent(book) == month + 1
    with pytest.raises(BudgetExhausted):
        dpunion.release(tmp_path / "5.csv", charge=charge, **COLUMNS, **OPTIONS)
