"""Search policies for flaws and audit releases: evidence in addition to the proofs, never a release.

search.py      search_policy: searches a policy for users who change a histogram more than the policy claims
  policies.py    the policies; attacks.py: where the search looks; examples.py: what it found, shrunk and as text
empirical.py   audit_release: lower bounds on epsilon and delta from many trials of the real code
  runs.py        worst-case neighbours, and many trials of them in one run
counting.py    audit_counts: the same for counts
  reach.py       search_reach: how far one person moves the sums of each step of counting
exact.py       the whole distribution of the output on tiny databases, without sampling
invariants.py  other properties of every release; noise.py: the noise of counts and of the look
mutants.py     run_mutants: releases with a known mistake, which the checks must notice
verdicts.py    the result of a whole audit, in words
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
