"""The exception tree: drawn, coded, with remedies, and safe to carry about."""

import inspect
import pickle
import re

import pytest

import dpunion
from dpunion import errors

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, BaseException) and kind.__module__ == errors.__name__
]
USER_ERRORS = [kind for kind in CLASSES if issubclass(kind, errors.DpunionError)]
OUR_ERRORS = [kind for kind in CLASSES if issubclass(kind, errors.InternalError)]
TREE = [line for line in errors.__doc__.splitlines() if line.startswith("    ")]
NAMES = [line.replace("│", " ").replace("├──", "   ").replace("└──", "   ").split()[0] for line in TREE]


def drawn_code(name):
    """Return the exit code written on the line of a class, or None."""
    found = re.search(r"exit code (\d+)$", TREE[NAMES.index(name)])
    return int(found[1]) if found else None


def test_every_error_is_the_users_or_ours():
    assert len(CLASSES) >= 11
    assert sorted(USER_ERRORS + OUR_ERRORS, key=str) == sorted(CLASSES, key=str)
    assert not set(USER_ERRORS) & set(OUR_ERRORS)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_drawn_under_its_parent(kind):
    """The tree in the module's docstring has each class once, indented below the class it derives from."""
    assert NAMES.count(kind.__name__) == 1
    at = NAMES.index(kind.__name__)
    depth = TREE[at].index(kind.__name__)
    places = [(name, line.index(name)) for name, line in zip(NAMES[:at], TREE[:at], strict=True)]
    above = [(name, place) for name, place in places if place < depth]
    if kind in {errors.DpunionError, errors.InternalError}:
        assert above == []
    else:
        assert above[-1] == (kind.__bases__[0].__name__, depth - 4)


def test_nothing_is_drawn_that_does_not_exist():
    assert sorted(NAMES) == sorted(kind.__name__ for kind in CLASSES)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_the_exit_code_that_is_drawn(kind):
    drawn = [drawn_code(parent.__name__) for parent in kind.__mro__ if parent in CLASSES]
    codes = [code for code in drawn if code is not None]
    assert kind.exit_code == (codes[0] if codes else errors.DpunionError.exit_code)


def test_the_exit_codes_are_told_apart():
    codes = {name: drawn_code(name) for name in NAMES if drawn_code(name) is not None}
    assert codes.items() >= {"BadParameter": 2, "BadSource": 3, "CannotWrite": 4, "InternalError": 1}.items()
    assert len(set(codes.values())) == len(codes)
    assert not set(codes.values()) & {0, 130}


@pytest.mark.parametrize("kind", USER_ERRORS)
def test_a_user_error_says_what_and_what_to_do(kind):
    error = kind("Something is wrong.", "Mend it.")
    assert (error.what, error.remedy) == ("Something is wrong.", "Mend it.")
    assert str(error) == "Something is wrong. Mend it."
    with pytest.raises(errors.InternalError, match="without a remedy"):
        kind("Something is wrong.", "")


@pytest.mark.parametrize("kind", USER_ERRORS)
def test_a_user_error_survives_pickling(kind):
    """Workers hand their errors over as pickles."""
    again = pickle.loads(pickle.dumps(kind("What.", "Remedy.")))
    assert type(again) is kind
    assert (again.what, again.remedy, again.exit_code) == ("What.", "Remedy.", kind.exit_code)


@pytest.mark.parametrize("kind", OUR_ERRORS)
def test_internal_errors_are_called_bugs(kind):
    error = kind("two and two are five")
    assert isinstance(error, AssertionError)
    assert str(error).startswith("two and two are five. This is a bug in dpunion")
    assert "No release was made" in str(error)


def test_a_bad_parameter_is_a_value_error():
    with pytest.raises(ValueError, match="epsilon"):
        dpunion.plan(epsilon=0.0, delta=1e-6)


def test_what_is_exported_is_what_is_raised():
    for name in ("BadParameter", "BadSource", "CannotWrite", "DpunionError", "NotPrivate"):
        assert getattr(dpunion, name) is getattr(errors, name)
