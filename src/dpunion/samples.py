"""The sample data that comes with dpunion."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def debian_depends() -> Path:
    """Return the path of a Parquet file: which Debian package (`user`) depends on which (`item`)."""
    return Path(str(resources.files("dpunion") / "data" / "debian_depends.parquet"))
