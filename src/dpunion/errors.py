"""Everything that dpunion raises on purpose.

    DpunionError                 the user can put it right: the message says how
    ├── BadParameter             a parameter of the call (also a ValueError)           exit code 2
    │   └── NotPrivate           a research policy was given to a release path
    ├── BadSource                the data cannot be read as asked                      exit code 3
    │   ├── SourceNotFound       no such file, no match for a pattern
    │   ├── UnknownColumn        the column is not there; the nearest names are
    │   ├── UnsupportedType      a column whose values have no canonical text form
    │   ├── NullUsers            rows without a user
    │   ├── DamagedSource        truncated, ragged, not UTF-8, failing its checksum
    │   └── NotEnoughMemory      no more memory, or no further thread (also a MemoryError)
    ├── CannotWrite              the output cannot be written                          exit code 4
    └── LedgerError              the budget's ledger cannot be used as asked           exit code 5
        ├── BudgetExhausted      the dataset's budget does not cover the release
        ├── AlreadyReleased      this very release was made before; nothing was charged
        ├── UnfinishedRelease    this very release is under way, or died; nothing was charged
        ├── ReplacedLedger       another ledger is now where the release was entered
        └── DamagedLedger        the ledger was altered or is not a ledger
    InternalError                our mistake, never the user's (an AssertionError)     exit code 1
    └── SensitivityMismatch      weights bounded otherwise than the noise assumes

Guarantees:
- no message holds a value from the data: only names, positions, types and public parameters;
- every message of a DpunionError ends with what to do about it.
"""

from __future__ import annotations

from typing import Any, Self


class LedgerNote(str):
    """A sentence about a charge, with the same as plain values; public.

    A release's statement has one, and whatever ends a run after its charge carries one as a note (`__notes__`).
    """

    __slots__ = ("facts",)
    facts: dict[str, Any]

    def __new__(cls, sentence: str, facts: dict[str, Any]) -> Self:
        """Return the sentence with its values."""
        note = super().__new__(cls, sentence)
        note.facts = facts
        return note

    def __reduce__(self) -> tuple[type, tuple[str, dict[str, Any]]]:
        return type(self), (str(self), self.facts)


def ledger_note(error: BaseException) -> LedgerNote | None:
    """Return what an error's notes say about the charge; notes of others are left alone, as they may hold anything."""
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, LedgerNote)]
    return notes[-1] if notes else None


class DpunionError(Exception):
    """What went wrong, and the remedy; both are public values only."""

    exit_code = 2

    def __init__(self, what: str, remedy: str) -> None:
        if not remedy:
            raise InternalError("an error without a remedy")
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what} {remedy}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.what, self.remedy)


class BadParameter(DpunionError, ValueError):
    """A parameter of the call has no valid meaning."""


class NotPrivate(BadParameter):
    """A policy without a privacy proof was given to a release path."""


class BadSource(DpunionError):
    """The data cannot be read as asked."""

    exit_code = 3


class SourceNotFound(BadSource):
    """There is nothing at the given path or pattern."""


class UnknownColumn(BadSource):
    """The column is not in the data."""


class UnsupportedType(BadSource):
    """The column's values have no canonical text form."""


class NullUsers(BadSource):
    """Some rows do not say whose they are."""


class DamagedSource(BadSource):
    """The file is truncated, ragged, not UTF-8 or otherwise broken; nothing of it was used."""


class NotEnoughMemory(BadSource, MemoryError):
    """The system gave no more memory, or no further thread."""


class CannotWrite(DpunionError):
    """The output cannot be written."""

    exit_code = 4


class LedgerError(DpunionError):
    """The ledger cannot be used as asked; nothing was granted."""

    exit_code = 5


class BudgetExhausted(LedgerError):
    """The dataset's budget does not cover the release."""


class AlreadyReleased(LedgerError):
    """This very release was made before.

    entry: the ledger entry's public name. outputs: (path, sha256) of what was written then. source_changed: whether the
    files that were read have another size or time now; None when that is unknown.
    """

    entry: str = ""
    outputs: tuple[tuple[str, str], ...] = ()
    source_changed: bool | None = None


class UnfinishedRelease(LedgerError):
    """An earlier run of this very release has reserved its budget and has not settled."""


class ReplacedLedger(LedgerError):
    """The ledger does not hold the entry that was made in it: a copy or another one was put in its place."""


class DamagedLedger(LedgerError):
    """The ledger was altered, or is no ledger."""


class InternalError(AssertionError):
    """A mistake of dpunion itself."""

    exit_code = 1

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. This is a bug in dpunion: please report it. No release was made.")


class SensitivityMismatch(InternalError):
    """The weights promise another sensitivity than the noise was calibrated to."""
