"""Why a release is not granted: it was made or begun before, or the budget does not cover it."""

from __future__ import annotations

from typing import Any, NoReturn

from dpunion.checks import nearest
from dpunion.errors import AlreadyReleased, BudgetExhausted, LedgerError, UnfinishedRelease
from dpunion.ledger.amounts import COUNTED, DELTA_UNITS, EPSILON_UNITS, Amounts, Composition, decimal
from dpunion.ledger.events import Account, Entry, EntryState


def refuse_repeat(ledger: str, same: list[Entry], sources: list[dict[str, Any]] | None) -> None:
    """Refuse what was settled before, the last such entry first; else what was begun and is open."""
    for entry in reversed(same):
        if entry.state is EntryState.SETTLED:
            then = entry.details.get("sources")
            changed = None if not then or not sources else then != sources
            since = " The source has changed since." if changed else ""
            problem = AlreadyReleased(
                f"This very release was made before: entry {ledger}#{entry.number}. Nothing was charged.{since}",
                "Use what was written then; to make and pay for another, ask to charge again (--charge-again).",
            )
            problem.entry, problem.outputs = f"{ledger}#{entry.number}", entry.outputs
            problem.source_changed = changed
            raise problem
    for entry in reversed(same):
        if entry.state is EntryState.UNSETTLED:
            raise UnfinishedRelease(
                f"An earlier run of this very release, entry {ledger}#{entry.number}, has not settled: it is "
                "still running, or it died. Its budget counts as spent, and nothing more was charged.",
                "Wait for it; if it died, ask to charge again (--charge-again).",
            )


def refuse_dataset(ledger: str, name: str, known: list[str]) -> NoReturn:
    """Refuse a dataset that was never opened: with the names there are, which are the operator's own, and a guess."""
    near = nearest(name, known)
    guess = "" if near is None else f"Did you mean {near!r}? "
    names = ", ".join(map(repr, known[:MOST_NAMES])) + (" and more" if len(known) > MOST_NAMES else "")
    raise LedgerError(
        f"The ledger {ledger} has no dataset {name!r}. It has: {names or 'none'}.",
        f"{guess}Open a new one with `dpunion ledger open`, or look with `dpunion ledger show`.",
    )


def refuse_charge(account: Account, charge: Amounts) -> NoReturn:
    """Raise what is asked for, what is left and what to do."""
    remedy = (
        "Ask for less (a smaller epsilon or delta), or do without: more would break the promise made for this data."
    )
    left = account.remaining
    if account.composition is Composition.ADDITIVE:
        raise BudgetExhausted(
            f"The budget of dataset {account.name!r} does not cover this release: it asks for (epsilon, delta) = "
            f"{pair(charge)}, and {pair(left)} is left.",
            remedy,
        )
    parts = [
        f"{getattr(charge, name) / max(1, getattr(account.caps, name)):.3%} of the {WORDS[name]} budget "
        f"({getattr(left, name) / max(1, getattr(account.caps, name)):.3%} is left)"
        for name in COUNTED[Composition.TIGHT]
        if getattr(charge, name) > getattr(left, name)
    ]
    raise BudgetExhausted(
        f"The budget of dataset {account.name!r} does not cover this release: it asks for {' and '.join(parts)}.",
        remedy,
    )


MOST_NAMES = 20
WORDS = {"mu_squared": "Gaussian", "novelty": "novel-item", "rounding": "rounding"}


def pair(amounts: Amounts) -> str:
    """Write (epsilon, delta) for people."""
    return f"({decimal(amounts.epsilon, EPSILON_UNITS)}, {decimal(amounts.delta, DELTA_UNITS)})"
