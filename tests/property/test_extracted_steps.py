"""The definitions that Coq's theorems are about, extracted and run, equal the kernels up to the rounding that is paid.

proofs/executable.v has the programs, and the theorems that with the operations of the reals they are the definitions
of the other files. Here they run on float64.
"""

import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpunion.algorithms import Funnel, Norm, Sensitivity
from dpunion.budget import Budget
from dpunion.kernels import counting, descent
from dpunion.mechanisms import State, Weights, mechanism_for
from dpunion.plans import plan_release
from twins import counting as counting_twins
from twins import kernels as twins

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_proofs  # noqa: E402

pytestmark = pytest.mark.full

USERS = 20_000
LARGEST = 40
U = 2.0**-53
PROGRAMS = "run_ball run_l2 run_l1 run_rough run_capped run_decision"
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


def draw_users(seed, lowest, highest):
    """Return users without common items: offsets, items, and a number for each item."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, LARGEST + 1, USERS)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    items = np.arange(offsets[-1], dtype=np.int32)
    # A quarter are at one end, where branches change.
    numbers = random.uniform(lowest, highest, items.size) * random.choice([1.0, 1.0, 0.0, 0.01], items.size)
    return offsets, items, numbers


def parts(offsets, numbers):
    return np.split(numbers, offsets[1:-1])


def close_in_l2(kernel, extracted, cutoff, budget):
    """Twice e_2 of docs/guarantees.md, section 8: both are float64."""
    allowed = 0.5 * math.ulp(cutoff) * math.sqrt(LARGEST) + (LARGEST / 2 + 5) * U * budget
    return all(np.linalg.norm(one - other) <= 2 * allowed for one, other in zip(kernel, extracted, strict=True))


def closes_like_the_kernel(run, kernel):
    radius, top = 0.4, 3.0
    offsets, items, gaps = draw_users(1, 0.0, top)
    extracted = run("ball", [[radius, *own] for own in parts(offsets, gaps)])
    kernel(offsets, items, gaps, radius)
    return close_in_l2(parts(offsets, gaps), extracted, top, radius)


def test_descend_ball_is_the_extracted_step(run_extracted):
    assert closes_like_the_kernel(run_extracted, descent.descend_ball)


def test_a_mutant_of_the_kernel_is_caught(run_extracted):
    """A step that forgets one item of each user, and one that rounds its radius to 10 digits."""

    def forgets(offsets, items, gaps, radius):
        for user in range(len(offsets) - 1):
            own = items[offsets[user] : offsets[user + 1]]
            squares = float(np.sum(gaps[own[:-1]] ** 2))
            gaps[own] -= min(1.0, radius / math.sqrt(squares) if squares else 1.0) * gaps[own]

    assert not closes_like_the_kernel(run_extracted, forgets)
    assert not closes_like_the_kernel(
        run_extracted,
        lambda offsets, items, gaps, radius: descent.descend_ball(offsets, items, gaps, radius * (1 + 1e-10)),
    )


def test_descend_l2_is_the_extracted_step(run_extracted):
    cutoff, budget = 6.5, 0.5
    offsets, items, weights = draw_users(2, 0.0, cutoff)
    before = parts(offsets, weights.copy())
    extracted = run_extracted("l2", [[cutoff, budget, *own] for own in before])
    twin = [list(own) for own in before]
    for own in twin:
        twins.descend_l2([range(len(own))], own, cutoff, budget)
    descent.descend_l2(offsets, items, weights, cutoff, budget)
    assert close_in_l2(parts(offsets, weights), extracted, cutoff, budget)
    assert close_in_l2([np.array(own) for own in twin], extracted, cutoff, budget)


def test_descend_l1_is_the_extracted_step(run_extracted):
    cutoff, budget = 6.5, 0.5
    offsets, items, weights = draw_users(3, 0.0, cutoff)
    extracted = run_extracted("l1", [[cutoff, budget, *own] for own in parts(offsets, weights)])
    descent.descend_l1(offsets, items, weights, cutoff, budget, np.empty(LARGEST))
    allowed = LARGEST * math.ulp(cutoff) + (6 * LARGEST + 4) * U
    for one, other in zip(parts(offsets, weights), extracted, strict=True):
        assert np.abs(one - other).sum() <= 2 * allowed


def test_capping_is_the_extracted_step(run_extracted):
    """The kernel counts in units of 2^-24, and its cap is whole: the extracted step gets that cap."""
    offsets, items, shares = draw_users(4, 0.0, 1.0)
    weights, room = (shares * 2**24).astype(np.int64), int(0.98 * 2**48)
    sums = np.zeros(items.size, np.int64)
    counting.add_capped(offsets, items, weights, room, LARGEST, sums)
    caps = []
    for own in parts(offsets, weights):
        squares = own**2
        caps.append(counting.cap_of(squares.copy(), room) if squares.sum() > room else 2**24)
    inputs = [[cap, *own] for cap, own in zip(caps, parts(offsets, weights), strict=True)]
    for given, extracted in zip(parts(offsets, sums), run_extracted("capped", inputs), strict=True):
        assert np.array_equal(given, extracted)
        assert (given**2).sum() <= room  # the premise `capped`


def test_rough_shares_are_the_extracted_ones(run_extracted):
    """Whole numbers of units, rounded down."""
    for extracted in run_extracted("rough", [[0.0] * size for size in range(1, LARGEST + 1)]):
        twin = counting_twins.rough_gift(range(len(extracted)), 2**24)
        assert all(0 <= share * 2**24 - units < 1 for share, units in zip(extracted, twin.values(), strict=True))


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
            scores,
            np.full(USERS, one.budget),
            given,
            one.stddev * noise,
            np.full(USERS, rho),
            np.full(USERS, one.threshold),
        ]
    )
    extracted = np.array(run_extracted("decision", inputs))

    class Drawn:
        def result(self):
            return noise

    weights = Weights(given, 1.0, np.ones(USERS, bool), Sensitivity(Norm.L2, one.budget), Drawn())
    state = State(scores.copy(), np.ones(USERS, bool), np.zeros(USERS, bool))
    after = mechanism.decide(weights, state, number, np.zeros((USERS, 2), np.uint64), None)
    tau = 5 * U * (mechanism.cutoffs[0] + 17 * one.stddev)
    assert np.abs(after.scores - extracted[:, 0]).max() <= tau
    clear = np.minimum(np.abs(after.scores - rho), np.abs(after.scores - one.threshold)) > tau
    assert clear.mean() > 0.99
    assert np.array_equal(after.released[clear], extracted[clear, 1] == 1.0)
    assert np.array_equal(after.alive[clear], extracted[clear, 2] == 1.0)
