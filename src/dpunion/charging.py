"""Charging a release to a ledger, from before its data is read until it is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from dpunion.errors import BadParameter, DpunionError, LedgerNote, ledger_note
from dpunion.reading.stdin import NAME as STANDARD_INPUT

if TYPE_CHECKING:
    from dpunion.ledger import Amounts, Reservation
    from dpunion.plans import Plan


class Request(Protocol):
    """What is to be read, and the public facts that tell it from other requests."""

    @property
    def source(self) -> Any:
        """What is read."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the facts."""
        ...


@contextlib.contextmanager
def reserved(
    ledger: str | os.PathLike[str] | None,
    dataset: str | None,
    charge: Plan | Amounts,
    reading: Request,
    facts: dict[str, Any],
    *,
    note: dict[str, Any] | None = None,
    charge_again: bool,
    test_key: bool,
) -> Iterator[Reservation | None]:
    """Charge the ledger, when there is one, for as long as the release is made.

    facts: what tells it from others beside the reading. note: what is shown of it when the charge is no plan.
    Guarantees: whatever ends the release early says, in a note, what became of the charge.
    """
    if (ledger is None) != (dataset is None):
        raise BadParameter("A ledger needs the name of a dataset, and the other way round.", "Give both, or neither.")
    if ledger is None or dataset is None:
        yield None
        return
    from dpunion.ledger import Ledger, fingerprint
    from dpunion.reading.states import source_states

    told = reading.to_dict()
    request = fingerprint(**told, **facts)
    # Standard input has always the same name and never the same rows.
    anew = charge_again or told["source"] == [STANDARD_INPUT]
    states = source_states(reading.source)
    book = Ledger.open(ledger)
    try:
        with book.reserve(
            dataset, charge, request, note=note, sources=states, charge_again=anew, test_key=test_key
        ) as reservation:
            yield reservation
    except BaseException as error:
        if ledger_note(error) is None and not isinstance(error, DpunionError):
            unknown = f"Whether this run was charged on {dataset!r}, `dpunion ledger show` says."
            error.add_note(LedgerNote(unknown, {"dataset": dataset, "charged": None}))
        raise
    finally:
        book.close()
