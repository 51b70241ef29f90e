"""The definitions that Coq's theorems are about, extracted and run, equal the kernels up to the rounding that is paid.

proofs/executable.v has the programs, and the theorems that with the operations of the reals they are the definitions
of the other files. Here they run on float64.
"""

import itertools
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dpunion.algorithms import Funnel, Norm, Sensitivity
from dpunion.budget import Budget
from dpunion.counting.steps import ONE, FineStep, MarksStep, RoughStep
from dpunion.kernels import counting, descent
from dpunion.mechanisms import State, Weights, mechanism_for
from dpunion.plans import plan_release
from twins import counting as counting_twins
from twins import kernels as twins

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_proofs  # noqa: E402

pytestmark = pytest.mark.full

USERS = 100_000
TWINS = 20_000  # of these, for twins in plain Python
LARGEST, USUAL = 300, 40  # items of a user: one user in a hundred may have the largest number
U = 2.0**-53
PROGRAMS = "run_ball run_l2 run_l1 run_rough run_marks run_capped run_fine run_decision"
EXTRACT = f"""From Coq Require Extraction ExtrOcamlBasic.
From dpunion Require Import executable.
Extraction "steps.ml" {PROGRAMS}.
"""
DRIVER = """#use "steps.ml";;
let show xs = print_endline (String.concat " " (List.map (Printf.sprintf "%.17g") xs));;
let run = function
  | "ball" -> (fun (c :: xs) -> run_ball 0. 1. (+.) (-.) ( *. ) (/.) sqrt (<=) c xs)
  | "l2" -> (fun (cutoff :: c :: xs) -> run_l2 0. (+.) (-.) ( *. ) (/.) sqrt (<=) cutoff c xs)
  | "l1" -> (fun (cutoff :: c :: xs) -> run_l1 0. 1. (+.) (-.) (/.) (<=) cutoff c xs)
  | "rough" -> (fun xs -> run_rough 0. 1. (+.) (/.) sqrt xs)
  | "marks" -> (fun [mark; burden] -> run_marks 1. (-.) (/.) mark burden)
  | "fine" -> (fun (room :: xs) -> run_fine 0. 1. (+.) (-.) ( *. ) (/.) sqrt (<=) room xs)
  | "capped" -> (fun (cap :: xs) -> run_capped (<=) cap xs)
  | "decision" -> (fun [score; c; weight; noise; rho; line] ->
      let (s, (passes, stays)) = run_decision (+.) ( *. ) (<=) score c weight noise rho line in
      [s; (if passes then 1. else 0.); (if stays then 1. else 0.)]);;
try while true do
  match String.split_on_char ' ' (input_line stdin) with
  | name :: rest -> show (run name (List.map float_of_string rest))
  | [] -> ()
done with End_of_file -> ();;
"""


@pytest.fixture(scope="module")
def run_extracted(tmp_path_factory):
    """Return a function that runs an extracted program on many inputs: lists of numbers."""
    lacking = check_proofs.missing_tools() or (None if shutil.which("ocaml") else "ocaml is not installed")
    if lacking:
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("extracted")
    for name in ("vectors", "contraction", "l1_descent", "counts", "executable"):
        shutil.copyfile(check_proofs.PROOFS / f"{name}.v", folder / f"{name}.v")
        check_proofs.compile_file(folder / f"{name}.v")
    (folder / "extract.v").write_text(EXTRACT, encoding="utf-8")
    check_proofs.compile_file(folder / "extract.v")
    (folder / "driver.ml").write_text(DRIVER, encoding="utf-8")

    def run(program, inputs):
        lines = "\n".join(" ".join([program, *(repr(float(x)) for x in one)]) for one in inputs)
        done = subprocess.run(
            ["ocaml", "-w", "-a", "-noprompt", "driver.ml"],
            cwd=folder,
            input=lines + "\n",
            capture_output=True,
            text=True,
            check=True,
        )
        return [np.array([float(x) for x in line.split()]) for line in done.stdout.splitlines()]

    return run


def draw_users(seed, top):
    """Return users without common items: offsets, items, and a gap for each item, from 0 to top.

    A third of the users have gaps of a hundredth, so that both branches are taken; a quarter of the gaps are tiny or 0.
    """
    random = np.random.default_rng(seed)
    sizes = random.integers(1, np.where(random.random(USERS) < 0.01, LARGEST, USUAL) + 1)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    items = np.arange(offsets[-1], dtype=np.int32)
    scales = np.repeat(random.choice([1.0, 0.1, 0.01], USERS), sizes)
    gaps = (
        random.uniform(0.0, top, items.size)
        * scales
        * random.choice([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1e-9], items.size)
    )
    return offsets, items, gaps


def parts(offsets, numbers):
    return np.split(numbers, offsets[1:-1])


def norm(offsets, numbers, power):
    return np.add.reduceat(np.abs(numbers) ** power, offsets[:-1]) ** (1.0 / power)


def descend_l1(offsets, items, weights, cutoff, budget):
    descent.descend_l1(offsets, items, weights, cutoff, budget, np.empty(LARGEST))


def forget_last(offsets, items, gaps, radius):
    """A mutant of descend_ball: a step that forgets one item of each user."""
    for user in range(len(offsets) - 1):
        own = items[offsets[user] : offsets[user + 1]]
        squares = float(np.sum(gaps[own[:-1]] ** 2))
        gaps[own] -= min(1.0, radius / math.sqrt(squares) if squares else 1.0) * gaps[own]


def raise_budget(kernel):
    """A mutant of a kernel: its budget is rounded to 10 digits."""
    return lambda offsets, items, numbers, *rest: kernel(offsets, items, numbers, *rest[:-1], rest[-1] * (1 + 1e-10))


@dataclass(frozen=True)
class Step:
    """One user's step: its kernel and twin, the norm of its budget, what rounding may add, and some mutants."""

    kernel: Callable[..., None]
    twin: Callable[..., None]
    power: int
    allowed: float
    mutants: tuple[Callable[..., None], ...]
    cutoff: float | None = None

    @property
    def arguments(self):
        return (BUDGET,) if self.cutoff is None else (self.cutoff, BUDGET)


TOP, BUDGET = 6.5, 0.5
# e_2 and e_1 of docs/guarantees.md, section 8, for the largest set.
ROUNDED_L2 = 0.5 * math.ulp(TOP) * math.sqrt(LARGEST) + (LARGEST / 2 + 5) * U * BUDGET
ROUNDED_L1 = LARGEST * math.ulp(TOP) + (6 * LARGEST + 4) * U
STEPS = {
    "ball": Step(
        descent.descend_ball, twins.descend_ball, 2, ROUNDED_L2, (forget_last, raise_budget(descent.descend_ball))
    ),
    "l2": Step(descent.descend_l2, twins.descend_l2, 2, ROUNDED_L2, (raise_budget(descent.descend_l2),), TOP),
    "l1": Step(descend_l1, twins.descend_l1, 1, ROUNDED_L1, (raise_budget(descend_l1), descent.descend_l2), TOP),
}


@pytest.fixture(scope="module", params=STEPS)
def stepped(request, run_extracted):
    """A step, its input, and what the extracted program makes of it."""
    step = STEPS[request.param]
    offsets, items, gaps = draw_users(len(request.param), TOP)
    numbers = gaps if step.cutoff is None else step.cutoff - gaps
    inside = norm(offsets, gaps, step.power) <= BUDGET
    assert 0.1 < inside.mean() < 0.9, "both branches are taken"
    extracted = run_extracted(request.param, [[*step.arguments, *own] for own in parts(offsets, numbers)])
    assert len(extracted) == USERS
    return step, offsets, items, numbers, np.concatenate(extracted)


def largest_error(stepped, kernel):
    """How far a kernel is from the extracted program: the largest norm of a user's differences."""
    step, offsets, items, numbers, extracted = stepped
    computed = numbers.copy()
    kernel(offsets, items, computed, *step.arguments)
    return norm(offsets, computed - extracted, step.power).max()


def test_a_kernel_is_the_extracted_step(stepped):
    """Twice what is allowed: both are float64."""
    step = stepped[0]
    assert largest_error(stepped, step.kernel) <= 2 * step.allowed


def test_a_twin_is_the_extracted_step(stepped):
    step, offsets, _, numbers, extracted = stepped
    for own, expected in itertools.islice(zip(parts(offsets, numbers), parts(offsets, extracted), strict=True), TWINS):
        computed = own.tolist()
        step.twin([range(len(computed))], computed, *step.arguments)
        assert np.linalg.norm(computed - expected, step.power) <= 2 * step.allowed


def test_mutants_of_a_kernel_are_caught(stepped):
    step = stepped[0]
    for mutant in step.mutants:
        assert largest_error(stepped, mutant) > 2 * step.allowed


def capped_sums(offsets, items, weights, room):
    sums = np.zeros(items.size, np.int64)
    counting.add_capped(offsets, items, weights, room, LARGEST, sums)
    return sums


def test_the_fine_step_is_the_extracted_one(run_extracted):
    """The extracted step finds the cap, too. The kernel rounds its square and itself down to units: below 2 units."""
    offsets, items, shares = draw_users(4, 1.0)
    weights = (shares * ONE).astype(np.int64)
    room = FineStep(weights).room
    sums = capped_sums(offsets, items, weights, room)
    inputs = [[room / ONE**2, *own] for own in parts(offsets, weights / ONE)]
    extracted = np.concatenate(run_extracted("fine", inputs)) * ONE
    capped = sums < weights
    assert 0.1 < capped.mean() < 0.9, "both branches are taken"
    tiny = 1e-6  # what float64 adds to the extracted numbers, in units
    assert -tiny <= (extracted - sums).min() <= (extracted - sums).max() < 2 + tiny
    assert np.array_equal(sums == weights, np.abs(extracted - weights) <= tiny)
    assert (np.add.reduceat(sums**2, offsets[:-1]) <= room).all()  # the premise `capped`
    for other in (room + room // 10**5, room - room // 10**5):  # a mutant with another room
        wrong = extracted - capped_sums(offsets, items, weights, other)
        assert wrong.min() < -tiny or wrong.max() >= 2 + tiny
    assert (extracted - weights).min() < -tiny, "a kernel that caps nobody is caught"


def test_capping_is_the_extracted_step(run_extracted):
    """Given the kernel's cap, which is whole, the extracted numbers are the kernel's and the twin's to the last bit."""
    offsets, items, shares = draw_users(4, 1.0)
    weights = (shares * ONE).astype(np.int64)
    room = FineStep(weights).room
    sums = capped_sums(offsets, items, weights, room)
    caps = []
    for own in parts(offsets, weights):
        squares = own**2
        caps.append(counting.cap_of(squares.copy(), room) if squares.sum() > room else ONE)
    inputs = [[cap, *own] for cap, own in zip(caps, parts(offsets, weights), strict=True)]
    extracted = run_extracted("capped", inputs)
    assert np.array_equal(sums, np.concatenate(extracted))
    assert not np.array_equal(weights, sums), "a kernel that caps nobody is caught"
    for own, given in itertools.islice(zip(parts(offsets, weights), extracted, strict=True), TWINS):
        twin = counting_twins.fine_gift(range(len(own)), own.tolist(), room)
        assert [twin[item] for item in range(len(own))] == given.tolist()


def test_rough_shares_are_the_extracted_ones(run_extracted):
    """Whole numbers of units, rounded down; what the program gets are random numbers, of which only how many counts."""
    offsets, items, gaps = draw_users(6, 1.0)
    units = RoughStep(items.size).add_up(SimpleNamespace(offsets=offsets, items=items))
    extracted = run_extracted("rough", [own + 0.5 for own in parts(offsets, gaps)])
    assert len(extracted) == USERS
    left = np.concatenate(extracted) * ONE - units
    assert 0 <= left.min() <= left.max() < 1
    for mutant in (units + 1, units - 1):
        wrong = np.concatenate(extracted) * ONE - mutant
        assert wrong.min() < 0 or wrong.max() >= 1
    for own, given in itertools.islice(zip(extracted, parts(offsets, units), strict=True), TWINS):
        assert list(counting_twins.rough_gift(range(len(own)), ONE).values()) == given.tolist()


def test_shares_at_the_marks_are_the_extracted_ones(run_extracted):
    """The program gets the mark below; the kernel finds it, and rounds down to 2^-16 of the way to the next mark."""
    offsets, items, shares = draw_users(7, 1.0)
    burdens = 2**20 + (shares * 2**30).astype(np.int64)
    marks = MarksStep(burdens).marks
    sums = np.add.reduceat(burdens, offsets[:-1])
    below = np.searchsorted(marks, sums, side="right") - 1
    assert below.min() >= 0
    assert below.max() < len(marks) - 1
    gifts = np.zeros((USERS, len(marks)), np.int64)
    for gift, own in zip(gifts, parts(offsets, items), strict=True):
        counting.add_marks(np.array([0, own.size]), own, burdens, marks, ONE, gift)
    users = np.arange(USERS)
    assert (gifts[users, below] + gifts[users, below + 1] == ONE).all()  # and nothing elsewhere
    assert (gifts.sum(axis=1) == ONE).all()
    extracted = np.array(run_extracted("marks", np.column_stack([marks[below], sums])))
    assert np.allclose(extracted.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    tiny = 1e-12
    left = extracted[:, 1] - gifts[users, below + 1] / ONE
    assert -tiny <= left.min() <= left.max() < 1 / counting.WHOLE + tiny
    swapped = extracted[:, 1] - gifts[users, below] / ONE
    assert swapped.min() < -tiny, "a kernel that gives the further mark more is caught"
    for user, own in enumerate(itertools.islice(parts(offsets, items), TWINS)):
        twin = counting_twins.marks_gift(range(own.size), burdens[own].tolist(), marks.tolist(), ONE, counting.WHOLE)
        assert {place: given for place, given in enumerate(gifts[user].tolist()) if given} == {
            place: given for place, given in twin.items() if given
        }


def test_a_decision_is_the_extracted_one(run_extracted):
    plan = plan_release(Funnel(), Budget(1.0, 1e-6))
    mechanism, number = mechanism_for(plan), 3
    one, rho = mechanism.numbers[number], mechanism.numbers[-1].threshold
    random = np.random.default_rng(5)
    scores = random.uniform(one.threshold - 1.0, rho, USERS)
    given = np.minimum(random.uniform(0.0, one.budget, USERS), (mechanism.cutoffs[number] - scores) / one.budget)
    noise = random.normal(size=USERS)
    inputs = np.column_stack(
        [
            scores, np.full(USERS, one.budget), given, one.stddev * noise, np.full(USERS, rho),
            np.full(USERS, one.threshold),
        ]
    )  # fmt: skip
    extracted = np.array(run_extracted("decision", inputs))

    def decide(noise):
        drawn = SimpleNamespace(result=noise.copy)
        weights = Weights(given.copy(), 1.0, np.ones(USERS, bool), Sensitivity(Norm.L2, one.budget), drawn)
        state = State(scores.copy(), np.ones(USERS, bool), np.zeros(USERS, bool))
        return mechanism.decide(weights, state, number, np.zeros((USERS, 2), np.uint64), None)

    after = decide(noise)
    tau = 5 * U * (mechanism.cutoffs[0] + 17 * one.stddev)
    assert np.abs(after.scores - extracted[:, 0]).max() <= tau
    assert np.abs(decide(noise * (1 + 1e-10)).scores - extracted[:, 0]).max() > tau, "other noise is caught"
    clear = np.minimum(np.abs(after.scores - rho), np.abs(after.scores - one.threshold)) > tau
    assert clear.mean() > 0.99
    assert np.array_equal(after.released[clear], extracted[clear, 1] == 1.0)
    assert np.array_equal(after.alive[clear], extracted[clear, 2] == 1.0)
