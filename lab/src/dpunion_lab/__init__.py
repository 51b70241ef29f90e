"""Study algorithms, never release: generated data, comparisons, and the papers' evaluation run again.

    import dpunion_lab as lab

    lab.compare("posts.parquet", user="author", item="word", algorithms=["funnel", "dp-sips"], epsilon=1.0, delta=1e-6)
    lab.reproduce(quick=True)

The lab's results about data are NOT PRIVATE: use public or generated data. Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpunion_lab.comparison import Comparison, compare
    from dpunion_lab.generators import AskRedditFitted, AskRedditLike
    from dpunion_lab.reproduction import Reproduction, reproduce

__version__ = "0.1.0"
__all__ = ["AskRedditFitted", "AskRedditLike", "Comparison", "Reproduction", "compare", "reproduce"]

_HOMES = {
    "AskRedditFitted": "generators",
    "AskRedditLike": "generators",
    "Comparison": "comparison",
    "Reproduction": "reproduction",
    "compare": "comparison",
    "reproduce": "reproduction",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dpunion_lab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dpunion_lab.{home}"), name)
