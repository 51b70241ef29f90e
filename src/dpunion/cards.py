"""A release as a small card for notebooks: how many, what was guaranteed, the first rows."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from dpunion.formats import escape_controls

STYLE = "border:1px solid #8886;border-radius:6px;padding:.6em 1em;max-width:44em;font-family:sans-serif"
NUMBER = ' style="text-align:right;font-variant-numeric:tabular-nums"'
TEXT = ' style="text-align:left"'


def draw_card(
    heading: str, sentences: Iterable[str], header: Sequence[str], rows: Sequence[Sequence[Any]], left: int
) -> str:
    """Return the card as HTML. rows: the first ones; left: how many more there are, which are not shown.

    Guarantees: whatever the texts hold, they are shown as text; nothing is loaded and nothing is run.
    """
    paragraphs = "".join(f'<p style="margin:.4em 0">{_shown(one)}</p>' for one in sentences)
    body = "".join(f"<tr>{''.join(_cell('td', value) for value in row)}</tr>" for row in rows)
    numbers = [isinstance(value, int) for value in rows[0]] if rows else [False] * len(header)
    head = "".join(
        f"<th{NUMBER if is_number else TEXT}>{_shown(name)}</th>"
        for name, is_number in zip(header, numbers, strict=True)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    more = f'<p style="margin:.4em 0;opacity:.7">and {left:,} more</p>' if left else ""
    return f'<div style="{STYLE}"><strong>{_shown(heading)}</strong>{paragraphs}{table}{more}</div>'


def _cell(tag: str, value: Any) -> str:
    if isinstance(value, int):
        return f"<{tag}{NUMBER}>{value:,}</{tag}>"
    return f"<{tag}{TEXT}>{_shown(str(value))}</{tag}>"


def _shown(text: str) -> str:
    return html.escape(escape_controls(text))
