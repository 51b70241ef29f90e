"""Open a source with the fields of a SourceRequest as keywords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpunion.reading import Rows, SourceRequest, open_source


def open_rows(
    source: Any,
    *,
    on_reading: Callable[[], None] = lambda: None,
    on_progress: Callable[[float], None] = lambda _: None,
    **request: Any,
) -> Rows:
    """Return the rows of a source."""
    return open_source(SourceRequest(source, **request), on_reading, on_progress)


def check_source(source: Any, **request: Any) -> None:
    """Refuse what can be refused without reading rows."""
    with open_rows(source, **request):
        pass
