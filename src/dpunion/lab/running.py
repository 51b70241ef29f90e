"""Run the trials of a study side by side, each as soon as there is room, and each only once."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpunion.algorithms import Bounding
from dpunion.checks import check_whole
from dpunion.lab.data import COVERAGE, LabData, bounded
from dpunion.lab.journals import Journal
from dpunion.lab.trials import Setting, Trial, identity, plan_setting, run_trial, trial_key
from dpunion.plans import Plan
from dpunion.threads import Threads

MOST_TRIALS = 1000
MOST_JOBS = 64

OnTrial = Callable[[str, float], None]
"""Told what was just finished and which part of all trials is done."""


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
        contributions = bounded(data, group.bounding, trial_key(group.number))
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

    # The largest groups first, so that the last ones to end are short.
    groups.sort(key=lambda group: len(group.settings), reverse=True)
    with Threads(jobs) as threads:
        running = [threads.submit(run_group, group) for group in groups]
        try:
            for one in running:
                one.result()
        finally:
            stop.set()
            threads.finish()
    return [done[setting, number] for setting in plans for number in range(trials)]


def _trial_of(setting: Setting, number: int, entry: dict[str, Any] | None) -> Trial | None:
    """Read a trial back from a journal; what does not read as one is run again."""
    if entry is None:
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        covered = tuple(int(entry[f"released_of_{k}_holders"]) for k in COVERAGE)
        return Trial(setting, number, int(entry["released"]), covered, float(entry["seconds"]))
    return None
