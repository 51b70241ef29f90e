"""What a ledger holds, for people: each dataset's budget and how far the rest reaches, and every entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpunion.ledger.events import Account, Entry, EntryState


@dataclass(frozen=True, slots=True)
class Overview:
    """All datasets and entries; head is the last row's `number:hash`, worth keeping elsewhere."""

    accounts: tuple[Account, ...]
    entries: tuple[Entry, ...]
    head: str

    def last_of(self, dataset: str) -> Entry | None:
        """Return the last release of a dataset that counts as spent."""
        spent = [one for one in self.entries if one.dataset == dataset and one.state is not EntryState.CANCELLED]
        return spent[-1] if spent else None

    def more_like_last(self, account: Account) -> int | None:
        """Return how many further releases like a dataset's last one the rest would cover; None before the first."""
        last = self.last_of(account.name)
        return None if last is None else account.more_like(last.charge)

    def datasets(self) -> list[dict[str, Any]]:
        """Return the datasets as plain values, each with what is left and how far it reaches."""
        return [one.to_dict() | {"more_like_the_last": self.more_like_last(one)} for one in self.accounts]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        entries = [entry.to_dict() for entry in self.entries]
        return {"datasets": self.datasets(), "entries": entries, "head": self.head}


def reach_in_words(more: int | None) -> str:
    """Say how far the rest of a budget reaches."""
    if more is None:
        return "all of it"
    return f"about {more:,} more like the last one" if more else "not enough for another like the last one"
