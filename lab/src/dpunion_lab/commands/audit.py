"""The commands audit policy and audit release."""

from __future__ import annotations

from typing import Annotated

import typer

from dpunion.cli.answers import answering, print_json, print_result
from dpunion.cli.options import AsJson

VIOLATED = 5

audit_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Search policies and releases for privacy flaws."
)

POLICY_HELP = """Search policies for flaws: histograms whose distance grows, users with more influence than claimed.

POLICY is one of l2-descent, l1-descent, funnel-first-round, funnel-later-round (or "shipped" for all of
these), greedy, l1-descent-l2-budget (or "research"), or path/to/file.py:function for one of your own: a function
(weights float64, items int32) -> new weights. It runs with your permissions.

[bold]Examples[/bold]

  [cyan]dpunion audit policy greedy[/cyan]

  [cyan]dpunion audit policy shipped --seconds 120[/cyan]

  [cyan]dpunion audit policy mine.py:update --norm l2 --cutoff 8[/cyan]

[bold]Exit codes[/bold]: 0 nothing was found, 5 a claim is violated, 2 a bad option."""

RELEASE_HELP = """Audit releases empirically: lower bounds on epsilon and delta, from many runs of the real code.

[bold]Examples[/bold]

  [cyan]dpunion audit release --trials 100000[/cyan]

  [cyan]dpunion audit release --algorithm funnel --delta 0.001 --trials 1000000[/cyan]

  [cyan]dpunion audit release --counts --algorithm funnel[/cyan]

  [cyan]dpunion audit release --mutants[/cyan]

  [cyan]dpunion audit release --json[/cyan]

It ends with a verdict that you can quote.

[bold]Exit codes[/bold]: 0 every claim holds (and every mutant is caught), 5 a claim is violated, 2 a bad option."""


@audit_app.command("policy", help=POLICY_HELP)
@answering
def policy_command(
    policies: Annotated[list[str], typer.Argument(metavar="POLICY...", help="Names of policies, or file.py:function.")],
    norm: Annotated[str | None, typer.Option(help="Your own policy: its norm, l1 or l2.", show_default=False)] = None,
    budget: Annotated[float, typer.Option(help="Your own policy: largest change of the weights by one user.")] = 1.0,
    cutoff: Annotated[float, typer.Option(help="Largest weight to try.")] = 10.0,
    max_items: Annotated[int, typer.Option(help="Largest number of items per user.")] = 100,
    seconds: Annotated[float, typer.Option(help="Seconds to search each policy.")] = 60.0,
    goal: Annotated[float, typer.Option(help="Stop when one user has this many times the claimed influence.")] = 1.5,
    seed: Annotated[int | None, typer.Option(help="Random seed, to repeat a search.", show_default=False)] = None,
    expect_violation: Annotated[bool, typer.Option(help="Fail if a policy shows no flaw.")] = False,
) -> None:
    """Search policies for flaws."""
    from dpunion_lab.audit.policies import RESEARCH, SHIPPED
    from dpunion_lab.audit.search import search_policy

    groups = {"shipped": list(SHIPPED), "research": list(RESEARCH)}
    wrong = False
    for name in [each for policy in policies for each in groups.get(policy, [policy])]:
        report = search_policy(
            name,
            norm=norm,
            budget=budget,
            cutoff=cutoff,
            max_items_per_user=max_items,
            seconds=seconds,
            goal=goal,
            seed=seed,
        )
        print_result(report.text() + "\n\n")
        wrong |= bool(report.violations) != expect_violation
    if wrong:
        raise typer.Exit(VIOLATED)


@audit_app.command("release", help=RELEASE_HELP)
@answering
def release_command(
    algorithm: Annotated[list[str] | None, typer.Option("--algorithm", "-a", show_default="all")] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The claim to test.")] = 1.0,
    delta: Annotated[
        float, typer.Option("--delta", "-d", help="The claim to test. Only large ones can be observed.")
    ] = 0.01,
    max_items: Annotated[int, typer.Option(help="Items per user; few make the audit sharper.")] = 3,
    trials: Annotated[int, typer.Option(help="Number of releases from each database of a pair.")] = 100_000,
    exact: Annotated[bool, typer.Option(help="Also compute exact divergences on tiny databases.")] = True,
    counts: Annotated[
        bool, typer.Option(help="Audit releases with counts instead, and each step of counting.")
    ] = False,
    mutants: Annotated[bool, typer.Option(help="Also check that the audit catches known mistakes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Audit releases empirically."""
    from dpunion.algorithms import algorithm_named
    from dpunion.plans.counts import Counts
    from dpunion_lab.audit.counting import SHARE, audit_counts
    from dpunion_lab.audit.empirical import audit_release
    from dpunion_lab.audit.exact import audit_exactly
    from dpunion_lab.audit.mutants import mutants_text, run_mutants
    from dpunion_lab.audit.reach import search_reach
    from dpunion_lab.audit.verdicts import AuditVerdict

    def show(text: str) -> None:
        """Print a part as soon as it is there; machines get all of it at the end."""
        if not as_json:
            print_result(text + "\n\n")

    limit = {"max_items_per_user": max_items}
    chosen = [algorithm_named(name, **({} if name == "optimal-single-item" else limit)) for name in algorithm or []]
    audit = audit_counts if counts else audit_release
    report = audit(chosen or None, epsilon=epsilon, delta=delta, max_items_per_user=max_items, trials=trials)
    show(report.text())
    reach = search_reach() if counts else None
    if reach is not None:
        show(reach.text())
    exactly = audit_exactly(epsilon, counts=Counts(share=SHARE) if counts else None) if exact else None
    if exactly is not None:
        show(exactly.text())
    results = run_mutants(min(trials, 100_000)) if mutants else []
    if results:
        show(mutants_text(results))
    verdict = AuditVerdict(report, reach, exactly, tuple(results))
    if as_json:
        print_json(verdict.to_dict())
    else:
        print_result(verdict.text() + "\n")
    if verdict.problems:
        raise typer.Exit(VIOLATED)
