"""The title, owner, purpose, day and ledger entry of a release; `draw_card` shows a release in a notebook."""

from __future__ import annotations

import datetime as dt
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dpunion.errors import BadParameter
from dpunion.releases.formats import escape_controls

LONGEST = {"title": 200, "owner": 200, "note": 2000}
"""The most characters of each; a ledger's row and the top of a page show them."""
JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Charged:
    """A release's entry in a ledger, at the time when it was charged. Public.

    entry, receipt: its name in the ledger, without and with its hash. epsilon, delta: the charge. total_epsilon,
    total_delta: the limit for all releases of the dataset together, by this composition. before, after: the spent part
    of the limit, without and with this release. more: how many more releases like this one the rest covers. written:
    the time of the charge.
    """

    entry: str
    receipt: str
    dataset: str
    epsilon: float
    delta: float
    composition: str
    total_epsilon: float
    total_delta: float
    before: float
    after: float
    more: int
    written: str

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Charged:
        """Read back what `About.to_dict` wrote; raise TypeError or ValueError where it cannot have."""
        kinds = {"float": (int, float), "int": (int,), "str": (str,)}
        for one in fields(cls):
            if isinstance(values[one.name], bool) or not isinstance(values[one.name], kinds[str(one.type)]):
                raise TypeError("a ledger entry of another kind")
        found = cls(**{one.name: values[one.name] for one in fields(cls)})
        amounts = (found.epsilon, found.delta, found.total_epsilon, found.total_delta)
        if not (all(map(math.isfinite, amounts)) and 0.0 <= found.before <= found.after <= 1.0 and found.more >= 0):
            raise ValueError("amounts that no ledger has")
        return found


@dataclass(frozen=True, slots=True)
class About:
    """The title, owner and purpose of a release; all of it becomes public with the release.

    made: the day, in UTC; charged: the entry in the ledger. dpunion fills in these two.

    Guarantees: it has only what the caller gave and what was charged; dpunion looks up no name of a user or machine.
    """

    title: str = ""
    owner: str = ""
    note: str = ""
    made: str = ""
    charged: Charged | None = None

    def __post_init__(self) -> None:
        for name, longest in LONGEST.items():
            value = getattr(self, name)
            # No controls and no lone surrogates.
            if not (isinstance(value, str) and len(value) <= longest) or not all(
                letter.isprintable() or letter.isspace() or letter in JOINERS for letter in value
            ):
                raise BadParameter(
                    f"The {name!r} of a release must be a text of at most {longest} printable characters.",
                    f"Shorten or correct it, or leave it out (--{name}).",
                )
            object.__setattr__(self, name, " ".join(value.split()))

    @property
    def words(self) -> dict[str, str]:
        """Return title, owner and note, without empty ones."""
        return {name: value for name in LONGEST if (value := getattr(self, name))}

    def on_this_day(self, charged: Charged | None) -> About:
        """Return a copy with the day of today and this charge."""
        return replace(self, made=dt.datetime.now(dt.UTC).date().isoformat(), charged=charged)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: the title, owner, note and day, and the entry in the ledger."""
        words = self.words | ({"made": self.made} if self.made else {})
        entry = {"ledger": asdict(self.charged)} if self.charged is not None else {}
        return ({"about": words} if words else {}) | entry

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> About:
        """Read back what `to_dict` wrote among other values; raise ValueError or TypeError where it cannot have."""
        words, entry = values.get("about", {}), values.get("ledger")
        if not isinstance(words, dict) or not isinstance(words.get("made", ""), str):
            raise TypeError("no words about a release")
        made = words.get("made", "")
        if made and dt.date.fromisoformat(made).isoformat() != made:
            raise ValueError("a day that is none")
        words = {name: words[name] for name in LONGEST if name in words}
        return cls(**words, made=made, charged=None if entry is None else Charged.from_dict(entry))


UNTOLD = About()
"""A release without title, owner and note."""
STYLE = "border:1px solid #8886;border-radius:6px;padding:.6em 1em;max-width:44em;font-family:sans-serif"
NUMBER = ' style="text-align:right;font-variant-numeric:tabular-nums"'
TEXT = ' style="text-align:left"'


def draw_card(
    heading: str, sentences: Iterable[str], header: Sequence[str], rows: Sequence[Sequence[Any]], left: int
) -> str:
    """Return the card as HTML. rows: the first rows of the release; left: the number of the other rows.

    Guarantees: the browser shows all texts as text; it loads nothing and runs nothing.
    """
    paragraphs = "".join(f'<p style="margin:.4em 0">{_escape_html(one)}</p>' for one in sentences)
    cells = (
        [f"<td{NUMBER}>{one:,}" if isinstance(one, int) else f"<td{TEXT}>{_escape_html(str(one))}" for one in row]
        for row in rows
    )
    body = "".join(f"<tr>{''.join(f'{cell}</td>' for cell in row)}</tr>" for row in cells)
    numbers = [isinstance(value, int) for value in rows[0]] if rows else [False] * len(header)
    head = "".join(
        f"<th{NUMBER if is_number else TEXT}>{_escape_html(name)}</th>"
        for name, is_number in zip(header, numbers, strict=True)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    more = f'<p style="margin:.4em 0;opacity:.7">and {left:,} more</p>' if left else ""
    return f'<div style="{STYLE}"><strong>{_escape_html(heading)}</strong>{paragraphs}{table}{more}</div>'


def _escape_html(text: str) -> str:
    return html.escape(escape_controls(text))
