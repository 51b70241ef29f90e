"""Policies searched for flaws, releases audited empirically: evidence beside the proofs, never a release.

search.py      search_policy: pairs that move apart, users who move too far, sequences that differ too much
  policies.py    what is searched; attacks.py: where it looks; examples.py: what it found, made small; text.py: drawn
empirical.py   audit_release: lower bounds on epsilon and delta from many trials of the real code
  neighbours.py  worst-case neighbours; runs.py: many trials in one run; binomial.py: Clopper-Pearson
counting.py    audit_counts: the same for counts; noise.py: their noise in a whole release
  reach.py       search_reach: how far one person moves the sums of each step of counting
exact.py       the whole law of the output on tiny databases, without sampling
invariants.py  what must hold besides; mutants.py: releases with a known mistake, which the checks must notice
"""

from __future__ import annotations

from dpunion_lab.audit.counting import audit_counts
from dpunion_lab.audit.empirical import AuditReport, audit_release
from dpunion_lab.audit.mutants import run_mutants
from dpunion_lab.audit.policies import Subject
from dpunion_lab.audit.reach import ReachReport, search_reach
from dpunion_lab.audit.search import SearchReport, search_policy

__all__ = [
    "AuditReport",
    "ReachReport",
    "SearchReport",
    "Subject",
    "audit_counts",
    "audit_release",
    "run_mutants",
    "search_policy",
    "search_reach",
]
