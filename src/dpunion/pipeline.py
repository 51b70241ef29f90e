"""Release the union of people's sets, privately: the main path, for every source, engine and algorithm. Read it first.

plan      every number, from public parameters only                  plans
charge    the ledger is charged before anything is read              charging, ledger
read      rows -> each person's distinct items, at most this many     engines: read (reading, sets)
look      how many items people have, with noise, chooses a plan      engines: look (plans.look)
select    rounds of weigh, decide, narrow                            engines: select (mechanisms, ngrams.lengths)
count     with counts: how many people have each item                engines: count (counting)
publish   the chosen items, sorted; files complete or not at all     releases
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack, cast, overload

from dpunion.algorithms import Algorithm, Funnel
from dpunion.budget import budget_for_release
from dpunion.charging import charged, find_due
from dpunion.checks import AlgorithmName, NormalizationName, NullUsersName, OrderName, Settings
from dpunion.engines import Engine, engine_for
from dpunion.engines.publishing import Outputs, count_holders, draft_release, publish
from dpunion.engines.warming import show_compiling
from dpunion.errors import name_shortages
from dpunion.ledger.schedules import Due
from dpunion.plans import Plan, Planned, as_algorithm, plan_release, refuse_settings
from dpunion.plans.candidates import add_candidates
from dpunion.plans.counts import Counts, as_counts
from dpunion.plans.look import LookPlan, needs_look, plan_look
from dpunion.plans.ngrams import NgramPlan, Ngrams, plan_ngrams
from dpunion.randomness import RunKey
from dpunion.releases.release import Release
from dpunion.requests import Candidates, Charge, Dated, Folder, PathLike, Request, Run, Words, refuse_misplaced
from dpunion.threads import usable_cores, work_in_background


@overload
def plan(
    algorithm: Algorithm,
    *,
    epsilon: float,
    delta: float,
    weak_budget: bool = False,
    counts: bool | Counts = False,
    candidates: Any = None,
) -> Plan: ...
@overload
def plan(
    algorithm: Algorithm | Ngrams | AlgorithmName | None = None,
    *,
    epsilon: float,
    delta: float,
    weak_budget: bool = False,
    counts: bool | Counts = False,
    candidates: Any = None,
    **settings: Unpack[Settings],
) -> Plan | LookPlan | NgramPlan: ...
def plan(
    algorithm: Algorithm | Ngrams | AlgorithmName | None = None,
    *,
    epsilon: float,
    delta: float,
    weak_budget: bool = False,
    counts: bool | Counts = False,
    candidates: Any = None,
    **settings: Unpack[Settings],
) -> Plan | LookPlan | NgramPlan:
    """Fix every number of a release, without data; all parameters as in `release`."""
    refuse_misplaced(settings, algorithm, release.__annotations__)
    budget, counted = budget_for_release(epsilon, delta, weak_budget=weak_budget), as_counts(counts)
    planned: Plan | LookPlan | NgramPlan
    if isinstance(algorithm, Ngrams):
        planned = refuse_settings(algorithm, settings) if settings else plan_ngrams(algorithm, budget, counted)
    elif needs_look(algorithm, settings):
        planned = plan_look(budget, counted, dict(settings))
    else:
        chosen = as_algorithm(Funnel.name if algorithm is None else algorithm, **settings)
        planned = plan_release(chosen, budget, counted)
    asked = Candidates.of(candidates)
    return planned if asked is None else add_candidates(planned, asked.read(), asked.error)


@show_compiling
@name_shortages()
def release(
    source: Any,
    *,
    user: str | None = None,
    item: str | Sequence[str] | Words | Dated | None = None,
    text: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    weak_budget: bool = False,
    algorithm: Algorithm | Ngrams | AlgorithmName | None = None,
    counts: bool | Counts = False,
    query: str | None = None,
    known: Any = None,
    candidates: Any = None,
    null_users: NullUsersName = "refuse",
    normalize: NormalizationName | None = None,
    out: PathLike | Sequence[PathLike] | Folder = (),
    sort: OrderName | None = None,
    charge: Charge | None = None,
    run: Run = Run(),  # noqa: B008 - frozen
    unsafe_test_key: int | None = None,
    **settings: Unpack[Settings],
) -> Release:
    """Publish the items that many people share, such as words, queries or keys, without exposing any one person.

    >>> import dpunion
    >>> posts = [(f"author {n}", word) for n in range(500) for word in ("cat", "dog")]
    >>> dpunion.release([*posts, ("author 1", "secret")], epsilon=1.0, delta=1e-6).items
    ('cat', 'dog')

    source       paths or patterns (Parquet, Arrow IPC, CSV, TSV, JSONL; .gz, .zst), a folder of Parquet files, Stdin(),
                 a database with `query`; any object with `__arrow_c_stream__` (pandas, polars, pyarrow, DuckDB); pairs
                 (user, item); a mapping user -> items; a DataFrame of Spark, or a SparkSource that it is to read
    user         the column that says whose row it is
    item         a column; several, whose combinations are released as tuples; Dated("at", "day"); or Words("body", ...)
    text         a column of texts, whose words are the items: text="body" is short for item=Words("body")
    epsilon      how much one person may change the odds of a result, by a factor of at most e^epsilon: 1 is strong;
                 smaller is more private, and fewer items come out
    delta        a small probability on top of that, such as 1e-6; choose it well below 1 / number of people
    weak_budget  True permits an epsilon above 10 or a delta above 0.001, which protect almost nothing
    algorithm    an algorithm or its name, by default "funnel"; Ngrams() releases n-grams length by length
    counts       True, or Counts(share=...): also estimate how many people have each item, from the same budget
    query        SQL that returns the rows: for a database, or for Parquet files, which are the table `source` in it
    known        a public list (a file, an earlier Release, texts) to leave out, so that the budget finds new items;
                 Known(list, include=True) adds it to the result
    candidates   a public list of items that people may well have (a dictionary, a catalogue, an earlier Release), or
                 Candidates(list, error=...): its items need fewer people, and a few come out that nobody has
    null_users   "refuse" or "drop" rows that do not say whose they are
    normalize    "nfc-lower" (default for texts), "nfc" (default for items) or "exact": done to items and words before
                 duplicates are dropped
    out          files to write, by suffix; or Folder(...) for Spark to write
    sort         "item" by their bytes, or "people", the most popular first: the default with counts
    charge       Charge(ledger, dataset): paid before reading; the same release is not made twice in silence;
                 with scheduled=True, the release that the dataset's schedule has due, without epsilon and delta
    run          Run(...): memory, threads, shards, progress, overwriting; nothing in it changes the guarantee
    unsafe_test_key  fixes the randomness, for tests; the result is stamped NOT PRIVATE
    settings     parameters of the algorithm that is named: max_items_per_user=50, rounds=3. Without a number, or with
                 "auto", funnel chooses max_items_per_user by a private look; Funnel() as an object takes 300

    Your part: a query, view or frame may keep, drop or change a row by that row, or by the same person's rows,
    alone (no LIMIT, no join); and types must be public: read with explicit types, never inferred ones.

    Guarantees:
    - (epsilon, delta)-differential privacy for adding or removing one user and all of that user's rows;
    - a bad budget, algorithm, option or output is refused before any data is read;
    - with a charge, the budget is spent before any data is read, and a crash counts as spent.
    """
    due, lists = find_due(charge, {"known": known, "candidates": Candidates.of(candidates)}, epsilon, delta)
    if isinstance(algorithm, Ngrams) and item is None:
        item, text = Words(text), None
    rows = partial(Request.of, source, user=user, item=item, text=text, query=query)
    make_request = partial(rows, null_users=null_users, normalize=normalize, **lists)
    options = partial(_plan_as_due, due, algorithm, settings, counts)
    make_plan = partial(options, epsilon=epsilon, delta=delta, weak_budget=weak_budget)
    threads = run.threads if known is None and getattr(item, "stop_words", None) is None else 1
    planned, request = _prepare(make_plan, make_request, lists["candidates"], threads)
    request.check_for(planned)
    outputs = Outputs.of(out, overwrite=run.overwrite, sort=sort, counts=planned.counts is not None)
    engine = engine_for(request, run, outputs.folder)
    engine.check(request, planned)
    outputs.check_apart(source=source, item=item, charge=charge, **lists)
    return fulfil(planned, request, engine, outputs, charge, run, RunKey.for_run(unsafe_test_key), due)


def _prepare(make_plan: Any, make_request: Any, asked: Any, threads: int | None) -> tuple[Planned, Request]:
    """Plan, and make the request, which reads public lists: another thread reads files of candidates during the plan.

    Lists in memory are read by the caller's thread, to which they may belong.
    """
    named = asked is not None and all(isinstance(one, str | os.PathLike) for one in asked.sources)
    with work_in_background(make_request, (threads or usable_cores()) if named else 1) as making:
        planned = make_plan()
        if asked is not None:
            add_candidates(planned, None, asked.error)  # what does not depend on the list is then known
    request = make_request() if making is None else making.result()
    return planned if asked is None else add_candidates(planned, request.candidates, asked.error), request


def _plan_as_due(due: Due | None, algorithm: Any, settings: Any, counts: Any, **budget: Any) -> Planned:
    """Plan a release by a budget of its own, or by its share of a schedule's account."""
    if due is not None:
        refuse_misplaced(settings, algorithm)
        return due.plan(algorithm, as_counts(counts), settings, weak_budget=budget["weak_budget"])
    return cast("Planned", plan(algorithm, **budget, counts=counts, **settings))


def fulfil(
    plan: Planned,
    request: Request,
    engine: Engine,
    outputs: Outputs,
    charge: Charge | None,
    run: Run,
    key: RunKey,
    due: Due | None = None,
) -> Release:
    """Make a planned release: charge, read, look, select, count, publish. due: for a release of a schedule.

    Guarantees: nothing is read before the charge.
    """
    with charged(charge, plan, request, engine, key, run.about, due) as entry, outputs.claimed():
        # The ledger finds a release that was made before first. A bad output then gives the charge back.
        outputs.check()
        with engine.read(request, plan, key, entry.start_reading) as held:
            decided = plan.choose_plan(lambda look: engine.look(held, look, key))
            chosen = engine.select(held, decided, key)
            counted = count_holders(engine, held, chosen, request, decided, key)
            draft = draft_release(decided, request, engine, entry.notes, key, run.about.on_this_day(entry.charged))
            made, written = publish(chosen, counted, draft, request, engine, outputs, run)
        entry.settle(made, written)
    return made


def release_ngrams(source: Any, *, longest: int = 3, **options: Any) -> Release:
    """Release n-grams of 1 to `longest` tokens: `release` with algorithm=Ngrams(longest=...) and the same options."""
    return release(source, algorithm=Ngrams(longest=longest), **options)
