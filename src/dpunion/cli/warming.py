"""The command warm-up."""

from __future__ import annotations

import time

from dpunion.cli.answers import answering, progress_bar, say
from dpunion.cli.groups import in_groups
from dpunion.cli.options import Quiet
from dpunion.errors import CannotWrite

WARM_UP_HELP = """Compile everything beforehand, so that no release has to: for images, and after installing.

What is compiled is kept in a folder of the user who runs this: $XDG_CACHE_HOME/dpunion, or ~/.cache/dpunion. In an
image, run it as the user who will make releases, on the kind of processor that will.

[bold]Examples[/bold]

  [cyan]dpunion warm-up[/cyan]"""


@answering
@in_groups
def warm_up_command(*, quiet: Quiet = False) -> None:
    """Compile everything beforehand."""
    from dpunion.kernels.compiler import cache_directory
    from dpunion.warming import warm_up

    del quiet  # for `answering`
    began = time.monotonic()
    place = cache_directory()
    if place is None:
        raise CannotWrite(
            "There is no folder in which compiled kernels could be kept.",
            "Set XDG_CACHE_HOME to a folder that only you can write, in folders that only you or root can write.",
        )
    with progress_bar() as show:
        compiled = warm_up(lambda job, done: show(f"compiling: {job}", done))
    seconds = time.monotonic() - began
    found = f"{compiled} kernels were compiled" if compiled else "Everything was compiled already"
    say(f"{found}, and kept in {place} ({seconds:.0f} s).")
