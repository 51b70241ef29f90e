"""Lets a journey read its transcript as the tests of the documentation read theirs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
