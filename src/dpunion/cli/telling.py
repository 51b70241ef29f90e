"""The options that say what people are told about a release: its title, who answers for it, what it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dpunion.cli.groups import Group, option_group
from dpunion.cli.options import OUTPUT

if TYPE_CHECKING:
    from dpunion.releases.about import About

Title = Annotated[
    str | None,
    typer.Option("--title", help="Title of the release, for its page and the ledger.", rich_help_panel=OUTPUT),
]
Owner = Annotated[
    str | None,
    typer.Option(
        "--owner", help="Person or team responsible for the release. dpunion looks up no names.", rich_help_panel=OUTPUT
    ),
]
Note = Annotated[
    str | None, typer.Option("--note", help="Purpose of the release, and its audience.", rich_help_panel=OUTPUT)
]


@option_group
class AboutOptions(Group):
    """What people are told about the release."""

    title: Title = None
    owner: Owner = None
    note: Note = None

    def about(self) -> About:
        """Return title, owner and note as a release takes them."""
        from dpunion.releases.about import About

        return About(self.title or "", self.owner or "", self.note or "")
