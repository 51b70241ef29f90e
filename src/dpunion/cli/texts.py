"""Options of texts: how they become words, and how words and items are spelled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpunion.cli.groups import Group, option_group
from dpunion.cli.options import DATA
from dpunion.errors import BadParameter

if TYPE_CHECKING:
    from dpunion.requests import Words

TokenizerName = Annotated[
    str,
    typer.Option("--tokenizer", help="Texts: tokenizer words, whitespace, treebank or icu.", rich_help_panel=DATA),
]
Normalize = Annotated[
    str | None,
    typer.Option(
        "--normalize",
        help="How to normalize items and words: nfc-lower (default for texts), nfc (default for items) or exact.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Locale = Annotated[
    str, typer.Option("--locale", help="Texts: language for the tokenizer icu, like th or ja.", rich_help_panel=DATA)
]
StopWords = Annotated[
    Path | None,
    typer.Option(
        "--stop-words",
        help="Texts: file with a public list of words to leave out, one per line.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
MinLength = Annotated[
    int, typer.Option("--min-length", help="Texts: leave out words with fewer characters.", rich_help_panel=DATA)
]
DropUrls = Annotated[bool, typer.Option("--drop-urls", help="Texts: leave out web addresses.", rich_help_panel=DATA)]
Sentences = Annotated[bool, typer.Option("--sentences", help="Keep n-grams within sentences.", rich_help_panel=DATA)]


@option_group
class TextOptions(Group):
    """How texts are split."""

    tokenizer: TokenizerName = "words"
    locale: Locale = "en"
    drop_urls: DropUrls = False
    stop_words: StopWords = None
    min_length: MinLength = 1
    sentences: Sentences = False

    def words(self, column: str, lengths: str | None = None) -> Words:
        """Return the column of texts with these options."""
        from dpunion.requests import Words

        return Words(column, lengths=lengths or (1, 1), **self.values())

    def check_texts(self, text: str | None, ngrams: str | None) -> None:
        """Refuse these options for ready items."""
        if text is None and (ngrams is not None or self.values() != TextOptions().values()):
            raise BadParameter(
                "Options for texts were given, but there is no column of texts.",
                "Name the column of texts with 'text' (--text), or leave out these options.",
            )
