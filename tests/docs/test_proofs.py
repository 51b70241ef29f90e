"""The proofs, checked by Coq: they hold, they rest on what docs/proofs.md tells, and changes break them."""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_proofs  # noqa: E402

PAGE = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
LIBRARY = {"propositional_extensionality", "functional_extensionality_dep", "constructive_indefinite_description"}
ROW = re.compile(r"^\| `proofs/(\w+)\.v::(\w+)` \| .* \| (none|library) \| ([\d ]+|none) \|$", re.MULTILINE)
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


PAID = "normal_mean (fun z => (look_bound (ratio nu z))%:E)"
STRICT = "(forall x y : R, x < y -> Phi x < Phi y)"
A_LOOK = """(R : realType) (d : measure_display) (T : measurableType d) (law : {measure set T -> \\bar R})
  (X : T -> R) (nu : R) : (forall o, 0 <= X o) -> measurable_fun setT X -> 0 < nu ->
  (forall f : R -> R, measurable_fun setT f -> (forall x, 0 <= x -> 0 <= f x) ->
    (\\int[law]_o (f (X o))%:E = normal_mean (fun z => (f (ratio nu z))%:E))%E) ->
  delta_G_is_mean R -> Phi_is_chance R -> delta_G_slopes R ->"""


@dataclass(frozen=True)
class Error:
    """An error in a theorem: the text, the erroneous and a harmless one in its place, and what refutes the error.

    `contradiction` is a proof of False: the refutation, applied to the altered theorem and to nothing else that Coq has
    not proved but `premises`.
    """

    theorem: str
    before: str
    after: str
    harmless: str
    refutation: str
    premises: str
    contradiction: str

    @property
    def module(self):
        return self.theorem.partition(".")[0]

    def altered(self, text):
        """Return the theorem's file with another text in its place."""
        unaltered = (check_proofs.PROOFS / f"{self.module}.v").read_text(encoding="utf-8")
        assert unaltered.count(self.before) == 1
        return unaltered.replace(self.before, text)


ERRORS = {
    "a larger target in round 1 for listed items": Error(
        "lists.first_round_listed",
        "target i <= top) -> (",
        "target i <= 2%:R * top) -> (",
        "target i <= top *+ 1) -> (",
        "errors.larger_listed_target_fails",
        "(R : rcfType) :",
        "@larger_listed_target_fails R (@altered.first_round_listed R)",
    ),
    "novelty counted once for t items": Error(
        "novel_walk.some_novel_passes",
        "weight t <= #|N|%:R * each.",
        "weight t <= each.",
        "weight t <= (#|N|%:R * each) *+ 1.",
        "errors.novelty_counted_once_fails",
        "(R : realType) :",
        "@novelty_counted_once_fails R (@altered.some_novel_passes R)",
    ),
    # The whole keeps what the release after the look keeps.
    "a look that is not paid for": Error(
        "look.look_private",
        f"paid : ({PAID} <= total%:E)%E",
        "paid : delta <= total",
        f"paid : ({PAID} <= (total *+ 1)%:E)%E",
        "unpaid.unpaid_look_fails",
        f"{A_LOOK} {STRICT} ->",
        "fun X0 mX nu0 normal mean chance slopes strict =>"
        " unpaid_look_fails X0 mX nu0 normal mean chance slopes strict (@altered.look_private R)",
    ),
    "a weight above 1 in a step of counting": Error(
        "counts.rough_adds_one",
        "then (Num.sqrt #|L|%:R)^-1",
        "then 2%:R * (Num.sqrt #|L|%:R)^-1",
        "then (Num.sqrt #|L|%:R)^-1 *+ 1",
        "errors.doubled_share_fails",
        "(R : rcfType) :",
        "@doubled_share_fails R (@altered.rough_adds_one R)",
    ),
    "a composition that adds up mu instead of its squares": Error(
        "composition.adaptive_composition",
        "first + n) mu r ^+ 2.",
        "first + n) mu r.",
        "first + n) mu r * mu r.",
        "summed.summed_distances_fail",
        f"(R : realType) : gaussian_readings R -> {STRICT} -> delta_G_is_mean R -> normals_add R ->",
        "fun readings strict mean sums =>"
        " summed_distances_fail readings strict (@altered.adaptive_composition R mean sums)",
    ),
}
# In the theorem of the whole: n = 1 says what is there, another n an error.
WHOLE = {
    "a larger target in round 1 for listed items": (
        "0%N i 0 <= aim 0%N * positive (cutoff 0%N))",
        "0%N i 0 <= (aim 0%N * positive (cutoff 0%N)) *+ n)",
        2,
    ),
    "novelty counted once for t items": (
        "      #|fresh_items keep listed|%:R * walk_chance",
        "      #|fresh_items keep listed|%:R ^+ n * walk_chance",
        0,
    ),
    "a look that is not paid for": ("(ratio nu z))%:E) <= delta", "(ratio (nu *+ n) z))%:E) <= delta", 0),
    "a step of counting that costs more": (
        "step_spread r) ^+ 2 <= plan_counting plan",
        "step_spread r) ^+ 2 <= plan_counting plan *+ n",
        2,
    ),
    "more items than the plan knows": ("#|keep k v| <= plan_most plan)", "#|keep k v| <= plan_most plan ^ n)", 2),
    "a larger aim": ("c r * aim r <= 1)", "c r * aim r <= 1 *+ n)", 2),
    "larger budgets": ("rounds) c r ^+ 2 <= 1", "rounds) c r ^+ 2 <= 1 *+ n", 2),
    "a larger delta in the certificate": (
        "plan_certified eps delta' mu0 (plan o)",
        "plan_certified eps (delta' *+ n) mu0 (plan o)",
        2,
    ),
}


def compile_altered(compiled, folder, module, text):
    """Compile another text of a file beside the others."""
    shutil.copytree(compiled, folder, dirs_exist_ok=True)
    (folder / f"{module}.v").write_text(text, encoding="utf-8")
    check_proofs.compile_file(folder / f"{module}.v")


def refused_in(compiled, folder, module, text):
    """Return in which theorem Coq refuses a file: in its proof, so it is no error of syntax or of types."""
    with pytest.raises(check_proofs.ProofFails) as failure:
        compile_altered(compiled, folder, module, text)
    assert "Syntax error" not in str(failure.value)
    line = int(re.search(r"line (\d+), characters", str(failure.value))[1])
    before = text.splitlines()[: line - 1]
    start = max(number for number, one in enumerate(before) if re.match(r"(Lemma|Theorem) ", one))
    assert "Proof." in before[start:]
    assert "Qed." not in before[start:]
    return re.match(r"\w+ (\w+)", before[start])[1]


def taken_for_granted(text, theorem):
    """Return a file up to a theorem, with the theorem taken for granted: for all variables and premises before it."""
    head = text[: text.index("Proof.", text.index(f"Theorem {theorem}"))]
    still_open = []
    for kind, name in re.findall(r"^(Section|End) (\w+)\.$", head, re.MULTILINE):
        still_open = [*still_open, name] if kind == "Section" else still_open[:-1]
    ends = "".join(f"End {name}.\n" for name in reversed(still_open))
    return f"{head}Proof using All.\nAdmitted.\n{ends}"


def contradict(compiled, folder, error, text):
    """Derive a contradiction from an altered theorem, or raise what Coq says."""
    theorem = error.theorem.partition(".")[2]
    compile_altered(compiled, folder, "altered", taken_for_granted(error.altered(text), theorem))
    imports = f"From dpunion Require Import gaussian composition look {error.refutation.partition('.')[0]}."
    (folder / "contradiction.v").write_text(
        check_proofs.PREAMBLE.format(imports=f"{imports}\nFrom dpunion Require altered.")
        + "From mathcomp.analysis Require Import ereal lebesgue_measure lebesgue_integral.\n"
        + f"Theorem contradiction {error.premises} False.\nProof. exact ({error.contradiction}). Qed.\n",
        encoding="utf-8",
    )
    check_proofs.compile_file(folder / "contradiction.v")


@pytest.mark.parametrize(
    ("module", "before", "after", "refused"),
    [
        ("contraction", "y i = 0) /\\ norm2 y <= c.", "y i = 0) /\\ norm2 y = c.", "ball_convex"),
        ("counterexample", "budget_norm : nat := 2.", "budget_norm : nat := 1.", "last_users_run"),
    ],
)
def test_a_sphere_and_another_norm_are_refused(compiled, tmp_path, module, before, after, refused):
    """A sphere in place of the ball, and the norm in which the counterexample's budget is counted."""
    text = (check_proofs.PROOFS / f"{module}.v").read_text(encoding="utf-8")
    assert text.count(before) == 1
    assert refused_in(compiled, tmp_path, module, text.replace(before, after)) == refused


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_an_error_is_refused_where_it_is_made(compiled, tmp_path, error):
    assert refused_in(compiled, tmp_path, error.module, error.altered(error.after)) == error.theorem.partition(".")[2]


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_harmless_change_in_the_same_place_is_accepted(compiled, tmp_path, error):
    """So what Coq refuses is the error, not that the text has changed."""
    compile_altered(compiled, tmp_path, error.module, error.altered(error.harmless))


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_an_error_is_false(compiled, tmp_path, error):
    """Taken for granted, the altered theorem contradicts the refutation, which is its negation as it stands."""
    contradict(compiled, tmp_path, error, error.after)


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_harmless_change_is_not_refuted(compiled, tmp_path, error):
    with pytest.raises(check_proofs.ProofFails, match="contradiction"):
        contradict(compiled, tmp_path, error, error.harmless)


def whole_with(name, n):
    before, after, _ = WHOLE[name]
    text = (check_proofs.PROOFS / "whole.v").read_text(encoding="utf-8")
    assert before in text  # the look's price stands twice: for one key, and for all
    return text.replace(before, re.sub(r"\bn\b", str(n), after))


@pytest.mark.parametrize("name", WHOLE)
def test_an_error_in_the_whole_is_refused(compiled, tmp_path, name):
    refused = refused_in(compiled, tmp_path, "whole", whole_with(name, WHOLE[name][2]))
    assert refused in {"is_funnel_runs", "default_funnel_private"}


@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_with_the_number_1_is_accepted(compiled, tmp_path, name):
    compile_altered(compiled, tmp_path, "whole", whole_with(name, 1))


def test_the_page_lists_the_errors():
    rows = re.findall(r"^\| [^|`]+ \| `(\w+)` \| `(\w+)` \|$", PAGE, re.MULTILINE)
    assert rows == [(error.theorem.partition(".")[2], error.refutation.partition(".")[2]) for error in ERRORS.values()]
