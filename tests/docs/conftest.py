"""Lets the tests of the documentation import the site's extensions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "extensions"))
