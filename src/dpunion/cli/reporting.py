"""The command report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpunion.cli.answers import answering
from dpunion.cli.options import OUTPUT, Force

REPORT_HELP = """Turn a release into a web page to read and sign: what it means for one person, the list, and the plan.

[bold]Examples[/bold]

  [cyan]dpunion release posts.parquet -u author -i word -e 1 -d 1e-6 --title "Words" --out release.json[/cyan]

  [cyan]dpunion report release.json --out release.html[/cyan]

The page needs no network and works on desktops, phones, in dark mode and in print."""


@answering
def report_command(
    release: Annotated[Path, typer.Argument(help="Release file (.json).", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output page. Default: next to the release.", rich_help_panel=OUTPUT),
    ] = None,
    force: Force = False,
) -> None:
    """Turn a release into a page."""
    from dpunion.addresses import public_address
    from dpunion.errors import SourceNotFound
    from dpunion.reading.overlaps import refuse_overwriting
    from dpunion.releases.release import Release
    from dpunion.report import check_page, release_page, write_page

    target = out or release.with_suffix(".html")
    check_page(target, overwrite=force)
    refuse_overwriting(target, {"release": release})
    if not release.is_file():
        raise SourceNotFound(
            f"There is no file {public_address(release)}.", "Write a release as .json first, with --out release.json."
        )
    write_page(target, release_page(Release.from_json(release.read_text("utf-8", "replace"))), overwrite=force)
    typer.echo(f"Written to {target}.", err=True)
