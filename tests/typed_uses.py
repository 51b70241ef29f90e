"""What a type checker says of uses of the library: `mypy` reads this file, and nothing runs it.

Each line that is marked must be an error, for mypy --strict refuses a mark without one.
"""

from __future__ import annotations

from typing import Any, assert_type

import dpunion
from dpunion.chances import Needed
from dpunion.plans.ngrams import NgramPlan


def check_uses(rows: list[tuple[str, str]], release: dpunion.Release) -> None:
    """Use the library rightly, and wrongly where it is marked."""
    planned = dpunion.plan("funnel", epsilon=1.0, delta=1e-6, rounds=3)
    assert_type(planned, dpunion.Plan | dpunion.LookPlan | NgramPlan)
    assert_type(planned.opening, dpunion.Plan)
    assert_type(planned.needed([10], listed=True), tuple[Needed, ...])
    assert_type(planned.opening.needed()[0].even, int | None)
    assert_type(dpunion.plan(dpunion.Funnel(rounds=3), epsilon=1.0, delta=1e-6), dpunion.Plan)
    assert_type(dpunion.release(rows, epsilon=1.0, delta=1e-6, max_items_per_user=50), dpunion.Release)
    dpunion.release(rows, epsilon=1.0, delta=1e-6, algorithm="policy-gaussian", calibration="published", passes=2)
    dpunion.release(rows, item=dpunion.Words(tokenizer="icu"), epsilon=1.0, delta=1e-6, normalize="nfc-lower")

    planned.needed(10)  # type: ignore[arg-type]
    dpunion.plan("funel", epsilon=1.0, delta=1e-6)  # type: ignore[call-overload]
    dpunion.release(rows, epsilon=1.0, delta=1e-6, algorithm="funel")  # type: ignore[arg-type]
    dpunion.release(rows, epsilon=1.0, delta=1e-6, max_item_per_user=5)  # type: ignore[call-arg]
    dpunion.release(rows, epsilon=1.0, delta=1e-6, calibration="exakt")  # type: ignore[arg-type]
    dpunion.release(rows, epsilon=1.0, delta=1e-6, user_order="largest-first")  # type: ignore[arg-type]
    dpunion.release(rows, epsilon=1.0, delta=1e-6, null_users="keep")  # type: ignore[arg-type]
    dpunion.release(rows, epsilon=1.0, delta=1e-6, normalize="lower")  # type: ignore[arg-type]
    dpunion.release(rows, epsilon=1.0, delta=1e-6, sort="popularity")  # type: ignore[arg-type]
    dpunion.Words("body", tokenizer="spacy")  # type: ignore[arg-type]

    for item in release:
        assert_type(item, Any)
    assert_type(release[:3], tuple[Any, ...])
    assert_type("word" in release, bool)
    assert_type(release.to_pandas(), Any)
    assert_type(release.to_polars(), Any)
