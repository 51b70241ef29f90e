"""Trials of a study: run an algorithm, private or not, many times on data for study. NOT PRIVATE."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpunion.algorithms import Algorithm, Bounding
from dpunion.budget import Budget
from dpunion.checks import check_whole
from dpunion.contributions import Contributions, Int64s, Uint64s
from dpunion.counting.steps import look_at_sizes, set_sizes
from dpunion.engines.local import find_listed, run_rounds
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.plans.candidates import add_candidates
from dpunion.plans.look import AUTO, LookPlan, plan_look
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.grouping import bound_further
from dpunion.threads import Threads
from dpunion_lab.data import COVERAGE, LabData
from dpunion_lab.results import Journal
from dpunion_lab.study import ResearchPolicy, plan_study, study_mechanism

IDENTITY = "dpunion-lab-trial/1"
MOST_TRIALS = 1000
MOST_JOBS = 64

OnTrial = Callable[[str, float], None]
"""Takes the name of the trial that just ended, and the part of all trials that is done."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An algorithm or a research policy, and a budget.

    looks: Funnel chooses the number of items per person privately, as a release does; that of `algorithm` is unused.
    """

    algorithm: Algorithm | ResearchPolicy
    budget: Budget
    looks: bool = False

    @property
    def has_proof(self) -> bool:
        """Say whether the algorithm is private; research policies are not, at any budget."""
        return not isinstance(self.algorithm, ResearchPolicy)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the algorithm's parameters as plain values."""
        fields = dataclasses.fields(self.algorithm)
        values = {field.name: getattr(self.algorithm, field.name) for field in fields}
        values |= {"max_items_per_user": AUTO} if self.looks else {}
        return {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}

    @property
    def name(self) -> str:
        """Return the algorithm's name, with a warning if it is not private."""
        return self.algorithm.name if self.has_proof else f"{self.algorithm.name} (NOT PRIVATE)"

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as plain values."""
        return {
            "algorithm": self.algorithm.name,
            "parameters": self.parameters,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
        }


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one run. size: the number of released items. seconds: the time of the selection.

    covered[i]: how many of the released items at least COVERAGE[i] users have.
    """

    setting: Setting
    number: int
    size: int
    covered: tuple[int, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as plain values."""
        return self.setting.to_dict() | {
            "private_algorithm": self.setting.has_proof,
            "trial": self.number,
            "released": self.size,
            **{f"released_of_{k}_holders": count for k, count in zip(COVERAGE, self.covered, strict=True)},
            "seconds": self.seconds,
        }


def identity(data: LabData, setting: Setting, number: int) -> str:
    """Return a digest of everything that decides the trial: data, algorithm, parameters, budget, number, version."""
    from dpunion import __version__

    facts = setting.to_dict() | {"data": data.fingerprint, "trial": number, "version": __version__}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{IDENTITY}\n{text}".encode()).hexdigest()


def plan_setting(setting: Setting) -> Plan:
    """Plan a setting; a research policy gets the numbers of a similar private policy, which prove nothing about it."""
    algorithm = setting.algorithm
    if isinstance(algorithm, ResearchPolicy):
        return plan_study(algorithm, setting.budget)
    return plan_release(algorithm, setting.budget)


def bound_again(everything: Contributions, bounding: Bounding, key: RunKey) -> Contributions:
    """Return whole sets as a release with this key would bound and order them, without changing them.

    Guarantees: what a user keeps depends on that user's own set and the key alone.
    """
    # subtle: words of a digest under this key are as random as digests of the name under this key.
    user_digests = key.words(Purpose.USER, 0, everything.user_digests)
    return bound_further(dataclasses.replace(everything, user_digests=user_digests), bounding, key)


def trial_key(number: int) -> RunKey:
    """Return the key of a trial; all algorithms use the same one, so a comparison uses the same draws."""
    return RunKey.for_tests(number + 1)


def run_trial(data: LabData, setting: Setting, plan: Plan, contributions: Contributions, number: int) -> Trial:
    """Run a setting once. contributions: the data, bounded for the setting with the key of the trial."""
    begun = time.perf_counter()
    policy = setting.algorithm
    mechanism = study_mechanism(policy, plan) if isinstance(policy, ResearchPolicy) else mechanism_for(plan)
    chosen = run_rounds(mechanism, contributions, trial_key(number), threads=1)
    seconds = time.perf_counter() - begun
    held = data.holders[chosen]
    covered = tuple(int(np.count_nonzero(held >= k)) for k in COVERAGE)
    return Trial(setting, number, len(chosen), covered, round(seconds, 4))


# --- many trials --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Trials that use the same bounded sets, so the data is bounded once for all of them."""

    number: int
    bounding: Bounding
    settings: tuple[tuple[Setting, Plan], ...]


def check_counts(trials: int, jobs: int) -> None:
    """Refuse a number of trials or jobs that is out of range."""
    check_whole("a study", "trials", trials, 1, MOST_TRIALS)
    check_whole("a study", "jobs", jobs, 1, MOST_JOBS)


def plan_all(settings: Sequence[Setting], on_plan: OnTrial | None = None) -> dict[Setting, Plan | LookPlan]:
    """Plan every setting before any data is read, so that a bad setting is refused early."""
    plans: dict[Setting, Plan | LookPlan] = {}
    for setting in settings:
        if setting not in plans:
            given = {name: value for name, value in setting.parameters.items() if value != AUTO}
            plans[setting] = plan_look(setting.budget, None, given) if setting.looks else plan_setting(setting)
            if on_plan is not None:
                on_plan("planning", len(plans) / len(settings))
    return plans


def run_all(
    data: LabData,
    plans: Mapping[Setting, Plan | LookPlan],
    *,
    trials: int,
    jobs: int,
    journal: Journal | None = None,
    on_trial: OnTrial | None = None,
) -> list[Trial]:
    """Run `trials` trials of each setting, except those in the journal, and return all of them in order.

    Trials run in threads over one copy of the data; the kernels release the interpreter lock. After an interrupt, the
    running trials finish and enter the journal, and no other trial starts.
    """
    check_counts(trials, jobs)
    done, groups = _find_missing(data, plans, trials, journal)
    total = trials * len(plans)
    stop, lock = threading.Event(), threading.Lock()

    def run_group(group: _Group) -> None:
        if stop.is_set():
            return
        try:
            contributions = bound_again(data.everything, group.bounding, trial_key(group.number))
            for setting, plan in itertools.takewhile(lambda _: not stop.is_set(), group.settings):
                trial = run_trial(data, setting, plan, contributions, group.number)
                if journal is not None:
                    journal.add(identity(data, setting, group.number), trial.to_dict())
                with lock:
                    done[setting, group.number] = trial
                    if on_trial is not None:
                        on_trial(f"{setting.name}, trial {group.number + 1}", len(done) / total)
        except BaseException:
            stop.set()
            raise

    with Threads(jobs) as threads:
        running = [threads.submit(run_group, group) for group in groups]
        try:
            for one in running:
                one.result()
        finally:
            stop.set()
            threads.finish()
    return [done[setting, number] for setting in plans for number in range(trials)]


def _find_missing(
    data: LabData, plans: Mapping[Setting, Plan | LookPlan], trials: int, journal: Journal | None
) -> tuple[dict[tuple[Setting, int], Trial], list[_Group]]:
    """Return the trials that are in the journal, and the others in groups."""
    known = {} if journal is None else journal.entries
    done: dict[tuple[Setting, int], Trial] = {}
    waiting: dict[tuple[int, Bounding], list[tuple[Setting, Plan]]] = defaultdict(list)
    for number in range(trials):
        for setting, planned in plans.items():
            before = _trial_of(setting, number, known.get(identity(data, setting, number)))
            if before is not None:
                done[setting, number] = before
            else:
                plan = choose_fixed(data, planned, number) if isinstance(planned, LookPlan) else planned
                bounding = (plan if setting.looks else setting).algorithm.bounding
                waiting[number, bounding].append((setting, plan))
    groups = [_Group(*place, tuple(settings)) for place, settings in waiting.items()]
    # Start the largest groups first: then no thread is left with a large one at the end.
    return done, sorted(groups, key=lambda group: len(group.settings), reverse=True)


def _trial_of(setting: Setting, number: int, entry: dict[str, Any] | None) -> Trial | None:
    """Read a trial back from its journal entry, or return None if the entry is missing or unreadable."""
    if entry is None:
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        covered = tuple(int(entry[f"released_of_{k}_holders"]) for k in COVERAGE)
        return Trial(setting, number, int(entry["released"]), covered, float(entry["seconds"]))
    return None


@dataclass(frozen=True, slots=True)
class Looked:
    """One release with a look: the number of items per person that the look chose, and how many items it released."""

    bound: int
    size: int


def run_look(data: LabData, plan: LookPlan, number: int) -> Looked:
    """Make a release that begins with a look, with the key of this trial."""
    chosen = choose_fixed(data, plan, number)
    return Looked(chosen.algorithm.max_items_per_user, run_fixed(data, chosen, number))


def choose_fixed(data: LabData, plan: Plan | LookPlan, number: int) -> Plan:
    """Look, with the key of this trial, and return the plan that the look chooses; a plan without a look is fixed."""
    sizes = set_sizes(data.everything)
    return plan.choose_plan(lambda look: look_at_sizes(sizes, look, trial_key(number)))


def run_fixed(data: LabData, plan: Plan, number: int) -> int:
    """Select by a plan, with the key of this trial; return how many items it releases."""
    return len(select_fixed(data, plan, number))


def select_fixed(data: LabData, plan: Plan, number: int, listed: Uint64s | None = None) -> Int64s:
    """Select by a plan, with the key of this trial; return the numbers of the released items, as `run_rounds` does."""
    sets = bound_again(data.everything, plan.algorithm.bounding, trial_key(number))
    return run_rounds(mechanism_for(plan), sets, trial_key(number), threads=1, listed=listed)


class _Listed(NamedTuple):
    """A public list as plans take it: only its length counts here."""

    texts: Uint64s
    sha256: str = ""


def run_candidates(data: LabData, plan: Plan | LookPlan, listed: Uint64s, error: float, number: int) -> dict[str, Any]:
    """Make the same release without and with a list of candidates, whose digests are uint64[n, 2].

    today, with_list: released items that somebody has; unlisted_today, unlisted_with_list: those of them that are not
    listed; expected, spurious: how many candidates come out that nobody has, at most on average, and here.
    """
    table = data.everything.table
    places = find_listed(table.digests, listed)
    is_plain, nobody = places < 0, np.ones(len(listed), np.bool_)
    nobody[places[~is_plain]] = False
    longer = add_candidates(plan, _Listed(listed), error)
    before, after = (
        select_fixed(data, choose_fixed(data, one, number), number, digests)
        for one, digests in ((plan, None), (longer, listed))
    )
    spurious = int(np.count_nonzero(nobody[after[after >= len(table)] - len(table)]))
    expected, found = error * len(listed), len(after) - spurious
    return {
        "listed": len(listed),
        "listed_that_somebody_has": int(np.count_nonzero(~nobody)),
        "error": error,
        "today": len(before),
        "with_list": found,
        "gain": (found - expected) / max(1, len(before)),
        "unlisted_today": int(np.count_nonzero(is_plain[before])),
        "unlisted_with_list": int(np.count_nonzero(is_plain[after[after < len(table)]])),
        "expected": expected,
        "spurious": spurious,
    }
