"""The commands `dpunion audit` and, in the next module, `dpunion lab`; dpunion finds both by their entry points."""

from __future__ import annotations

from typing import Any

from click.exceptions import Exit

from dpunion.checks import AlgorithmName
from dpunion.cli import options
from dpunion.cli.answers import print_json, print_result
from dpunion.cli.help import Commands, command
from dpunion.cli.options import Argument, Given, Option
from dpunion_lab.commands.lab import lab_app

__all__ = ["audit_app", "lab_app"]

VIOLATED = 5

POLICY_HELP = """Search policies for flaws: histograms whose distance grows, users with more influence than claimed.

POLICY is one of l2-descent, l1-descent, funnel-first-round, funnel-later-round (or "shipped" for all of
these), greedy, l1-descent-l2-budget (or "research"), or path/to/file.py:function for one of your own: a function
(weights float64, items int32) -> new weights. It runs with your permissions.

[bold]Examples[/bold]
  dpunion audit policy greedy
  dpunion audit policy shipped --seconds 120
  dpunion audit policy mine.py:update --norm l2 --cutoff 8

[bold]Exit codes[/bold]: 0 nothing was found, 5 a claim is violated, 2 a bad option."""

RELEASE_HELP = """Audit releases empirically: lower bounds on epsilon and delta, from many runs of the real code.

[bold]Examples[/bold]
  dpunion audit release --trials 100000
  dpunion audit release --algorithm funnel --delta 0.001 --trials 1000000
  dpunion audit release --counts --algorithm funnel
  dpunion audit release --mutants
  dpunion audit release --json

It ends with a verdict that you can quote.

[bold]Exit codes[/bold]: 0 every claim holds (and every mutant is caught), 5 a claim is violated, 2 a bad option."""


@command(
    "policy",
    POLICY_HELP,
    [
        Argument("policies", "Names of policies, or file.py:function.", metavar="POLICY...", nargs=-1, required=True),
        Option("--norm", "Your own policy: its norm, l1 or l2."),
        Option("--budget", "Your own policy: largest change of the weights by one user.", float, default=1.0),
        Option("--cutoff", "Largest weight to try.", float, default=10.0),
        Option("--max-items max_items_per_user", "Largest number of items per user.", int, default=100),
        Option("--seconds", "Seconds to search each policy.", float, default=60.0),
        Option("--goal", "Stop when one user has this many times the claimed influence.", float, default=1.5),
        Option("--seed", "Random seed, to repeat a search.", int),
        Option("--expect-violation/--no-expect-violation", "Fail if a policy shows no flaw.", bool),
    ],
)
def policy_command(*, policies: tuple[str, ...], expect_violation: bool, **search: Any) -> None:
    """Search policies for flaws."""
    from dpunion_lab.audit.policies import RESEARCH, SHIPPED
    from dpunion_lab.audit.search import search_policy

    groups = {"shipped": list(SHIPPED), "research": list(RESEARCH)}
    wrong = False
    for name in [each for policy in policies for each in groups.get(policy, [policy])]:
        report = search_policy(name, **search)
        print_result(report.text() + "\n\n")
        wrong |= bool(report.violations) != expect_violation
    if wrong:
        raise Exit(VIOLATED)


@command(
    "release",
    RELEASE_HELP,
    [
        Option("--algorithm -a", "", AlgorithmName, multiple=True, show_default="all"),
        Option("--epsilon -e", "The claim to test.", float, default=1.0),
        Option("--delta -d", "The claim to test. Only large ones can be observed.", float, default=0.01),
        Option("--max-items", "Items per user; few make the audit sharper.", int, default=3),
        Option("--trials", "Number of releases from each database of a pair.", int, default=100_000),
        Option("--exact/--no-exact", "Also compute exact divergences on tiny databases.", bool, default=True),
        Option("--counts/--no-counts", "Audit releases with counts instead, and each step of counting.", bool),
        Option("--mutants/--no-mutants", "Also check that the audit catches known mistakes.", bool),
        options.as_json,
    ],
)
def release_command(**values: Any) -> None:
    """Audit releases empirically."""
    from dpunion.algorithms import algorithm_named
    from dpunion.plans.counts import Counts
    from dpunion_lab.audit.counting import SHARE, audit_counts
    from dpunion_lab.audit.empirical import audit_release
    from dpunion_lab.audit.exact import audit_exactly
    from dpunion_lab.audit.mutants import mutants_text, run_mutants
    from dpunion_lab.audit.reach import search_reach
    from dpunion_lab.audit.verdicts import AuditVerdict

    given = Given(**values)

    def show(text: str) -> None:
        """Print a part as soon as it is ready; with --json everything is printed at the end."""
        if not given.as_json:
            print_result(text + "\n\n")

    limit = {"max_items_per_user": given.max_items}
    chosen = [algorithm_named(name, **({} if name == "optimal-single-item" else limit)) for name in given.algorithm]
    claim = {"epsilon": given.epsilon, "delta": given.delta, "trials": given.trials}
    report = (audit_counts if given.counts else audit_release)(chosen or None, **claim, **limit)
    show(report.text())
    reach = search_reach() if given.counts else None
    if reach is not None:
        show(reach.text())
    counted = Counts(share=SHARE) if given.counts else None
    exactly = audit_exactly(given.epsilon, counts=counted) if given.exact else None
    if exactly is not None:
        show(exactly.text())
    results = run_mutants(min(given.trials, 100_000)) if given.mutants else []
    if results:
        show(mutants_text(results))
    verdict = AuditVerdict(report, reach, exactly, tuple(results))
    if given.as_json:
        print_json(verdict.to_dict())
    else:
        print_result(verdict.text() + "\n")
    if verdict.problems:
        raise Exit(VIOLATED)


audit_app = Commands(
    "audit",
    [policy_command, release_command],
    help="Search policies and releases for privacy flaws.",
    no_args_is_help=True,
)
