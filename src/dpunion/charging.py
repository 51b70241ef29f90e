"""Charge a release to a ledger: before its data is read, until its files are written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpunion.errors import DpunionError, LedgerNote, ledger_note
from dpunion.plans import Planned
from dpunion.randomness import RunKey
from dpunion.reading.stdin import NAME as STANDARD_INPUT
from dpunion.releases.about import About, Charged
from dpunion.requests import Charge, Request

if TYPE_CHECKING:
    from dpunion.engines import Engine
    from dpunion.ledger import Reservation
    from dpunion.releases.release import Release


class Entry:
    """The charge of a release; without a ledger, its methods do nothing."""

    def __init__(self, reservation: Reservation | None = None) -> None:
        self._reservation = reservation

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the statement says about the charge."""
        return () if self._reservation is None else (self._reservation.sentence,)

    @property
    def charged(self) -> Charged | None:
        """Return what was charged, for the release itself."""
        return None if self._reservation is None else self._reservation.charged

    def start_reading(self) -> None:
        """Record that reading starts: from now on the charge is not given back."""
        if self._reservation is not None:
            self._reservation.start_reading()

    def settle(self, made: Release, written: Sequence[Path]) -> None:
        """Record the hashes of the files, or of the items if there is no file."""
        if self._reservation is not None:
            self._reservation.settle(list(written), digest=None if written or made.stored else made.sha256)


def release_facts(plan: Planned, request: Request, engine: Engine) -> dict[str, Any]:
    """Return what makes a release different from others: the request, the plan, the names of sources, the shards."""
    return request.facts() | {"source": engine.name_sources(request), "plan": plan.to_dict(), "shards": engine.shards}


def what_is_read(request: Request, sources: list[str]) -> dict[str, Any]:
    """Describe the input for people: the sources as the user named them, and the columns of values.

    Guarantees: nothing from the rows is in it, and no name of a file that a folder or a pattern stands for.
    """
    columns = request.value if isinstance(request.value, tuple) else (request.value,)
    named = sources if request.is_named else []
    return {"sources": named, "columns": [str(one) for one in columns if one is not None]}


@contextlib.contextmanager
def charged(
    charge: Charge | None, plan: Planned, request: Request, engine: Engine, key: RunKey, about: About
) -> Iterator[Entry]:
    """Charge the ledger, if there is one, while the release is made.

    Guarantees: an error that ends the release early says in a note what happened to the charge.
    """
    if charge is None:
        yield Entry()
        return
    from dpunion import __version__
    from dpunion.ledger import Ledger, fingerprint
    from dpunion.reading.locate import source_states

    facts = release_facts(plan, request, engine)
    # Standard input always has the same name, but never the same rows.
    anew = charge.again or facts["source"] == [STANDARD_INPUT]
    which = fingerprint(**facts)
    described = about.words | what_is_read(request, facts["source"]) | {"version": __version__}
    further: dict[str, Any] = {"about": described, "sources": source_states(request.source), "charge_again": anew}
    book = Ledger.open(charge.ledger)
    try:
        with book.reserve(charge.dataset, plan, which, **further, test_key=key.is_test) as reservation:
            yield Entry(reservation)
    except BaseException as error:
        if ledger_note(error) is None and not isinstance(error, DpunionError):
            unknown = f"`dpunion ledger show` tells whether this run was charged on {charge.dataset!r}."
            error.add_note(LedgerNote(unknown, {"dataset": charge.dataset, "charged": None}))
        raise
    finally:
        book.close()
