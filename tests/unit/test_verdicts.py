"""The verdict of an audit: what it says when all is well, and that it names whatever is not."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

import dpunion
from dpunion.cli import app
from dpunion_lab.audit.empirical import audit_release
from dpunion_lab.audit.exact import ExactReport
from dpunion_lab.audit.mutants import MutantResult, mutants
from dpunion_lab.audit.verdicts import AuditVerdict

EXACT = ExactReport(1.0, (0.02, 1e-6), {"funnel (2 rounds)": (0.9, 0.99), "dp-sips": (0.5, 0.97)}, 1_234)


@pytest.fixture(scope="module")
def odds():
    return audit_release([dpunion.WeightedGaussian(max_items_per_user=2)], trials=200)


def test_a_good_verdict_says_what_was_looked_at(odds):
    caught = MutantResult(mutants()[0], dict.fromkeys(mutants()[0].checks, "seen"))
    verdict = AuditVerdict(odds, exact=EXACT, mutants=(caught,))
    assert verdict.problems == []
    text = verdict.text()
    assert text.startswith("Verdict: nothing was found.\n1 algorithm made ")
    assert f"{2 * 200 * odds.pairs:,} releases from {odds.pairs} pairs" in text
    assert "On 1,234 tiny databases, without sampling, the exact delta is at most 0.99000 of the claim." in text
    assert "1 of 1 programs with a known mistake were caught." in text
    assert text.endswith("Finding nothing is evidence, and no proof.")


def test_whatever_is_wrong_is_named(odds):
    (result,) = odds.results
    bad = dataclasses.replace(result.pairs[0], epsilon_bound=7.0)
    broken = dataclasses.replace(odds, results=(dataclasses.replace(result, pairs=(bad, *result.pairs)),))
    beyond = dataclasses.replace(EXACT, parts=EXACT.parts | {"dp-sips": (0.5, 1.01)})
    verdict = AuditVerdict(broken, exact=beyond, mutants=(MutantResult(mutants()[0], {}),))
    assert len(verdict.problems) == 3
    assert verdict.text().startswith("Verdict: FLAWED: weighted-gaussian does not keep its claim")
    assert "dp-sips has an exact delta above the claim" in verdict.text()
    assert f"the known mistake '{mutants()[0].name}' was not noticed" in verdict.text()
    assert "evidence, and no proof" not in verdict.text()
    assert "1.01000 VIOLATED" in beyond.text()
    assert verdict.to_dict()["holds"] is False


def test_the_command_ends_with_it_and_prints_it_for_machines():
    words = ["audit", "release", "-a", "weighted-gaussian", "--trials", "200", "--no-exact"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0
    assert said.stdout.rstrip().endswith("Finding nothing is evidence, and no proof.")
    values = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert values["holds"] is True
    assert values["verdict"].startswith("Verdict: nothing was found.")
    (one,) = values["algorithms"]
    assert (one["epsilon"]["claim"], one["delta"]["claim"], one["holds"]) == (1.0, 0.01, True)
    assert one["could_show"]["epsilon"] < 1.0
