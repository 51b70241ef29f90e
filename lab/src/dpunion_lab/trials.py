"""Trials of a study: an algorithm, private or not, run on data for study; many side by side, and each only once."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpunion.algorithms import Algorithm, Bounding
from dpunion.budget import Budget
from dpunion.checks import check_whole
from dpunion.contributions import Contributions
from dpunion.engines.local.rounds import run_rounds
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.sets.grouping import bound_again
from dpunion.threads import Threads
from dpunion_lab.data import COVERAGE, LabData
from dpunion_lab.journals import Journal
from dpunion_lab.study import ResearchPolicy, plan_study, study_mechanism

IDENTITY = "dpunion-lab-trial/1"
MOST_TRIALS = 1000
MOST_JOBS = 64

OnTrial = Callable[[str, float], None]
"""Told what was just finished and which part of all trials is done."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is tried: an algorithm or a research policy, and a budget."""

    algorithm: Algorithm | ResearchPolicy
    budget: Budget

    @property
    def has_proof(self) -> bool:
        """Say whether the algorithm is private; research policies are not, whatever the budget says."""
        return not isinstance(self.algorithm, ResearchPolicy)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the algorithm's parameters as plain values."""
        fields = dataclasses.fields(self.algorithm)
        values = {field.name: getattr(self.algorithm, field.name) for field in fields}
        return {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}

    @property
    def name(self) -> str:
        """Return the algorithm's name, with a word of warning when it is not private."""
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
    """What one run released. covered[i]: how many of it at least COVERAGE[i] users hold. seconds: of selecting."""

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
    """Return what tells this trial from all others: the data, the algorithm, its parameters, the budget, the number."""
    from dpunion import __version__

    facts = setting.to_dict() | {"data": data.fingerprint, "trial": number, "version": __version__}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{IDENTITY}\n{text}".encode()).hexdigest()


def plan_setting(setting: Setting) -> Plan:
    """Return the numbers to run with; a research policy gets those of its private relative, without the proof."""
    algorithm = setting.algorithm
    if isinstance(algorithm, ResearchPolicy):
        return plan_study(algorithm, setting.budget)
    return plan_release(algorithm, setting.budget)


def trial_key(number: int) -> RunKey:
    """Return the key of a trial: the same for all algorithms, so that they are compared on the same draws."""
    return RunKey.for_tests(number + 1)


def run_trial(data: LabData, setting: Setting, plan: Plan, contributions: Contributions, number: int) -> Trial:
    """Run once; `contributions` are the data bounded by the trial's key as the setting asks."""
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
    """Trials that see the same bounded sets, so that bounding is done once for all of them."""

    number: int
    bounding: Bounding
    settings: tuple[Setting, ...]


def check_counts(trials: int, jobs: int) -> None:
    """Refuse numbers of trials or jobs that have no meaning."""
    check_whole("a study", "trials", trials, 1, MOST_TRIALS)
    check_whole("a study", "jobs", jobs, 1, MOST_JOBS)


def plan_all(settings: Sequence[Setting], on_plan: OnTrial | None = None) -> dict[Setting, Plan]:
    """Fix the numbers of every setting, before any data is read: what cannot be planned is refused here."""
    plans: dict[Setting, Plan] = {}
    for setting in settings:
        if setting not in plans:
            plans[setting] = plan_setting(setting)
            if on_plan is not None:
                on_plan("planning", len(plans) / len(settings))
    return plans


def run_all(
    data: LabData,
    plans: dict[Setting, Plan],
    *,
    trials: int,
    jobs: int,
    journal: Journal | None = None,
    on_trial: OnTrial | None = None,
) -> list[Trial]:
    """Run `trials` trials of each setting, leaving out what the journal holds; return all, in order.

    Trials run in threads, whose kernels hold no interpreter lock, over one copy of the data. When interrupted, the
    trials under way are finished and kept, and no other is begun.
    """
    check_counts(trials, jobs)
    done, groups = _sorted_out(data, plans, trials, journal)
    total = trials * len(plans)
    stop, lock = threading.Event(), threading.Lock()

    def run_group(group: _Group) -> None:
        try:
            run_settings(group)
        except BaseException:
            stop.set()
            raise

    def run_settings(group: _Group) -> None:
        if stop.is_set():
            return
        contributions = bound_again(data.everything, group.bounding, trial_key(group.number))
        for setting in group.settings:
            if stop.is_set():
                return
            trial = run_trial(data, setting, plans[setting], contributions, group.number)
            if journal is not None:
                journal.add(identity(data, setting, group.number), trial.to_dict())
            with lock:
                done[setting, group.number] = trial
                if on_trial is not None:
                    on_trial(f"{setting.name}, trial {group.number + 1}", len(done) / total)

    with Threads(jobs) as threads:
        running = [threads.submit(run_group, group) for group in groups]
        try:
            for one in running:
                one.result()
        finally:
            stop.set()
            threads.finish()
    return [done[setting, number] for setting in plans for number in range(trials)]


def _sorted_out(
    data: LabData, plans: dict[Setting, Plan], trials: int, journal: Journal | None
) -> tuple[dict[tuple[Setting, int], Trial], list[_Group]]:
    """Return the trials that the journal holds, and the others in groups."""
    known = {} if journal is None else journal.entries
    done: dict[tuple[Setting, int], Trial] = {}
    waiting: dict[tuple[int, Bounding], list[Setting]] = defaultdict(list)
    for number in range(trials):
        for setting in plans:
            before = _trial_of(setting, number, known.get(identity(data, setting, number)))
            if before is not None:
                done[setting, number] = before
            else:
                waiting[number, setting.algorithm.bounding].append(setting)
    groups = [_Group(*place, tuple(settings)) for place, settings in waiting.items()]
    # The largest groups first, so that the last ones to end are short.
    return done, sorted(groups, key=lambda group: len(group.settings), reverse=True)


def _trial_of(setting: Setting, number: int, entry: dict[str, Any] | None) -> Trial | None:
    """Read a trial back from a journal; what does not read as one is run again."""
    if entry is None:
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        covered = tuple(int(entry[f"released_of_{k}_holders"]) for k in COVERAGE)
        return Trial(setting, number, int(entry["released"]), covered, float(entry["seconds"]))
    return None
