"""The proofs, checked by Coq: they hold, they rest on what docs/proofs.md tells, and changes break them."""

import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_proofs  # noqa: E402

PAGE = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
LIBRARY = {"propositional_extensionality", "functional_extensionality_dep", "constructive_indefinite_description"}
ROW = re.compile(r"^\| `proofs/(\w+)\.v::(\w+)` \| .* \| (none|library) \| ([\d ]+|none) \|$", re.MULTILINE)
PAID = "normal_mean (fun z => (look_bound (ratio nu z))%:E)"
FACT = re.compile(r"^\| (\d) \| `(\w+)` \|", re.MULTILINE)


def told():
    """Return what the page tells of each theorem: its axioms and its facts about the normal distribution."""
    facts = dict(FACT.findall(PAGE))
    return {
        f"{module}.{name}": (
            LIBRARY if axioms == "library" else set(),
            {facts[number] for number in used.split() if number != "none"},
        )
        for module, name, axioms, used in ROW.findall(PAGE)
    }


def found(theorem):
    """Return the same of a theorem as Coq has it."""
    facts = {name for _, name in FACT.findall(PAGE)}
    return set(theorem.axioms), facts & set(re.findall(r"\w+", theorem.statement))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder with all files compiled; or a skip that says what is missing."""
    lacking = check_proofs.missing_tools()
    if lacking:
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("proofs")
    check_proofs.compile_all(folder)
    return folder


@pytest.fixture(scope="module")
def theorems(compiled):
    return check_proofs.inspect(compiled, check_proofs.cited())


def test_what_is_cited_says_what_is_recorded(compiled):
    assert check_proofs.report(compiled) == check_proofs.RECORD.read_text(encoding="utf-8")


def test_what_is_cited_rests_on_what_the_page_tells(theorems):
    assert {theorem.name: found(theorem) for theorem in theorems} == told()
    assert set().union(*(theorem.axioms for theorem in theorems)) == LIBRARY


def test_a_missing_theorem_and_an_axiom_are_found(compiled, tmp_path):
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    with pytest.raises(check_proofs.ProofFails, match=r"contraction\.gone was not found"):
        check_proofs.inspect(tmp_path, ["contraction.gone"])
    weakened = (tmp_path / "sensitivity.v").read_text(encoding="utf-8")
    (tmp_path / "sensitivity.v").write_text(
        weakened + "\nAxiom taken : False.\nTheorem easy : 1%N = 2%N. Proof. by case: taken. Qed.\n", encoding="utf-8"
    )
    check_proofs.compile_file(tmp_path / "sensitivity.v")
    (easy,) = check_proofs.inspect(tmp_path, ["sensitivity.easy"], ["sensitivity"])
    assert easy.axioms == {"taken"}


@pytest.mark.parametrize(
    ("module", "before", "after", "refused"),
    [
        ("contraction", "y i = 0) /\\ norm2 y <= c.", "y i = 0) /\\ norm2 y = c.", "Lemma ball_convex"),
        ("counterexample", "budget_norm : nat := 2.", "budget_norm : nat := 1.", "Lemma last_users_run"),
        # A larger target in round 1 for listed items.
        ("lists", "target i <= top) -> (", "target i <= 2%:R * top) -> (", "Theorem first_round_listed"),
        # Novelty counted once for t items.
        ("novel_walk", "weight t <= #|N|%:R * each.", "weight t <= each.", "Theorem some_novel_passes"),
        # A look that is not paid for: the whole keeps what the release after it keeps.
        ("look", f"paid : ({PAID} <= total%:E)%E", "paid : delta <= total", "Theorem look_private"),
        # A weight above 1 in a step of counting.
        ("counts", "then (Num.sqrt #|L|%:R)^-1", "then 2%:R * (Num.sqrt #|L|%:R)^-1", "Theorem rough_adds_one"),
        # Composition that adds up mu instead of its squares.
        ("composition", "first + n) mu r ^+ 2.", "first + n) mu r.", "Theorem adaptive_composition"),
    ],
)
def test_errors_are_refused_where_they_are_made(compiled, tmp_path, module, before, after, refused):
    """A sphere in place of the ball, the norm in which the counterexample's budget is counted, and five more.

    Coq reads the altered statement, and refuses its proof: it is no error of syntax or of types. Unaltered, every file
    is accepted: the fixture has compiled it.
    """
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    text = (tmp_path / f"{module}.v").read_text(encoding="utf-8")
    assert text.count(before) == 1
    (tmp_path / f"{module}.v").write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(check_proofs.ProofFails) as failure:
        check_proofs.compile_file(tmp_path / f"{module}.v")
    assert "Syntax error" not in str(failure.value)
    line = int(re.search(r"line (\d+), characters", str(failure.value))[1])
    before = text.splitlines()[: line - 1]
    start = max(number for number, one in enumerate(before) if re.match(r"(Lemma|Theorem) ", one))
    assert before[start].startswith(refused)
    assert "Proof." in before[start:]
    assert "Qed." not in before[start:]
