"""The command sample."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from dpunion.cli.answers import answering, say
from dpunion.cli.options import Force

SAMPLE_HELP = """Copy the bundled sample data into a folder, for the examples in the documentation.

It says which Debian package depends on which: its columns are [cyan]user[/cyan] and [cyan]item[/cyan], and a package
plays the part of a person.

[bold]Examples[/bold]

  [cyan]dpunion sample[/cyan]

  [cyan]dpunion release debian_depends.parquet --user user --item item -e 1 -d 1e-6[/cyan]"""


@answering
def sample_command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Target folder. Default: the current folder.", show_default=False)
    ] = Path(),
    force: Force = False,
) -> None:
    """Copy the bundled sample into a folder."""
    from dpunion.files import atomic_file
    from dpunion.samples import debian_depends

    target = folder / debian_depends().name
    with debian_depends().open("rb") as sample, atomic_file(target, overwrite=force) as file:
        shutil.copyfileobj(sample, file)
    say(f"Written to {target}: which Debian package (user) depends on which (item).")
