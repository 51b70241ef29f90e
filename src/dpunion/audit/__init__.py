"""Policies searched for flaws, releases audited empirically: evidence beside the proofs, never a release.

search.py      search_policy: pairs that move apart, users who move too far, sequences that differ too much
  policies.py    what is searched; steps.py and sequences.py: the attacks; shrinking.py: small examples
empirical.py   audit_release: lower bounds on epsilon and delta from many trials of the real code
  worlds.py      worst-case neighbours; trials.py: many trials in one run; binomial.py: Clopper-Pearson
exact.py       the whole law of the output on tiny databases, without sampling
checks.py      what must hold besides; mutants.py: releases with a known mistake, which the checks must notice
drawing.py     all of it as text; draws.py: where attacks look
"""

from __future__ import annotations

from dpunion.audit.empirical import AuditReport, audit_release
from dpunion.audit.mutants import run_mutants
from dpunion.audit.policies import Subject
from dpunion.audit.search import SearchReport, search_policy

__all__ = ["AuditReport", "SearchReport", "Subject", "audit_release", "run_mutants", "search_policy"]
