"""The kernels that number, group, bound, share and descend once more, slowly: like the papers' pseudo-code.

Property tests hold each kernel equal to its twin.
Users are lists of item numbers; histograms are plain lists of floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence


def number_strings(strings: Iterable[bytes]) -> tuple[list[int], list[bytes]]:
    """Twin of interning.intern_rows: codes in order of first appearance, and the distinct strings."""
    table: dict[bytes, int] = {}
    codes = [table.setdefault(string, len(table)) for string in strings]
    return codes, list(table)


def group_by_user(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Twin of grouping: each user's distinct items in rising order."""
    held: dict[int, set[int]] = {}
    for user, item in pairs:
        held.setdefault(user, set()).add(item)
    return {user: sorted(items) for user, items in held.items()}


def keep_smallest(items: Sequence[int], priority: Callable[[int], int], max_items: int) -> list[int]:
    """Twin of bounding.keep_random: the max_items items with the smallest priority, in rising order."""
    return sorted(sorted(items, key=lambda item: (priority(item), item))[:max_items])


def add_shares(users: Iterable[Sequence[int]], share_of_size: Sequence[int], weights: list[int]) -> None:
    """Twin of shares.add_shares."""
    for items in users:
        for item in items:
            weights[item] += share_of_size[len(items)]


def descend_l2(users: Iterable[Sequence[int]], weights: list[float], cutoff: float, budget: float) -> None:
    """Twin of descent.descend_l2: H|W += G * min(1, budget / |G|_2) with G = cutoff - H|W."""
    for items in users:
        gaps = [cutoff - weights[item] for item in items]
        norm = math.sqrt(sum(gap * gap for gap in gaps))
        for item, gap in zip(items, gaps, strict=True):
            weights[item] = cutoff if norm <= budget else weights[item] + gap * (budget / norm)


def descend_l1(users: Iterable[Sequence[int]], weights: list[float], cutoff: float, budget: float) -> None:
    """Twin of descent.descend_l1: raise all by lambda where sum min(G, lambda) = budget."""
    for items in users:
        gaps = [cutoff - weights[item] for item in items]
        raise_by = _common_raise(gaps, budget, power=1)
        for item, gap in zip(items, gaps, strict=True):
            weights[item] = cutoff if gap <= raise_by else weights[item] + raise_by


def descend_ball(users: Iterable[Sequence[int]], gaps: list[float], radius: float) -> None:
    """Twin of descent.descend_ball: G -= G * min(1, radius / |G|_2)."""
    for items in users:
        norm = math.sqrt(sum(gaps[item] ** 2 for item in items))
        for item in items:
            gaps[item] -= gaps[item] * min(1.0, radius / norm if norm else 1.0)


def descend_l1_with_l2_budget(
    users: Iterable[Sequence[int]], weights: list[float], cutoff: float, budget: float
) -> None:
    """Twin of lab.study.descend_l1_with_l2_budget (NOT private): sum min(G, lambda)^2 = budget^2."""
    for items in users:
        gaps = [cutoff - weights[item] for item in items]
        raise_by = _common_raise(gaps, budget, power=2)
        for item, gap in zip(items, gaps, strict=True):
            weights[item] += min(gap, raise_by)


def fill_greedily(users: Iterable[Sequence[int]], weights: list[float], cutoff: float, budget: float) -> None:
    """Twin of lab.study.fill_greedily (NOT private)."""
    for items in users:
        left = budget
        for item in sorted(items, key=lambda item: cutoff - weights[item]):
            given = min(cutoff - weights[item], left)
            weights[item] += given
            left -= given


def fill_in_order(users: Iterable[Sequence[int]], weights: list[float], cutoff: float, budget: float) -> None:
    """Twin of lab.study.fill_in_order (NOT private)."""
    for items in users:
        left = budget
        for item in items:
            given = min(max(0.0, cutoff - weights[item]), left)
            weights[item] += given
            left -= given


def _common_raise(gaps: Sequence[float], budget: float, power: int) -> float:
    """Return lambda with sum min(gap, lambda)^power = budget^power, or the largest gap when all fit.

    subtle: between two gaps the sum is a simple function of lambda, so it is enough to know how many are capped.
    """
    allowed = budget**power
    if sum(gap**power for gap in gaps) <= allowed:
        return max(gaps, default=0.0)
    ordered = sorted(gaps)
    for capped, gap in enumerate(ordered):
        rest = len(ordered) - capped
        raise_by = float(((allowed - sum(g**power for g in ordered[:capped])) / rest) ** (1.0 / power))
        if gap >= raise_by:
            return raise_by
    raise AssertionError("unreachable: all gaps fit")
