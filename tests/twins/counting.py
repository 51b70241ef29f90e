"""The readable twin of counting: what one person gives in each step, in fractions and whole numbers.

Property tests hold the kernels equal to it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction


def rough_gift(items: Sequence[int], one: int) -> dict[int, int]:
    """1/sqrt(k) to each of k items, rounded down to units."""
    return {item: math.isqrt(one * one // len(items)) for item in items}


def marks_gift(
    items: Sequence[int], burdens: Sequence[int], marks: Sequence[int], one: int, whole: int
) -> dict[int, int]:
    """One in all, divided between the marks below and above the summed burden; the nearer one gets more."""
    burden = sum(burdens[item] for item in items)
    place = min(max(bisect_right(marks, burden) - 1, 0), len(marks) - 1)
    upper = 0
    if marks[0] <= burden and place + 1 < len(marks):
        upper = int(whole * ((burden - marks[place]) / (marks[place + 1] - marks[place])))
    gift = {place: one - one * upper // whole}
    if upper:
        gift[place + 1] = one * upper // whole
    return gift


def fine_gift(items: Sequence[int], weights: Sequence[int], room: int) -> dict[int, int]:
    """The weight of each item, or the largest common cap under which the squares fit into the room."""
    mine = [weights[item] for item in items]
    if sum(weight * weight for weight in mine) <= room:
        return dict(zip(items, mine, strict=True))
    low, high = 0, max(mine)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(min(weight, middle) ** 2 for weight in mine) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return {item: min(weight, low) for item, weight in zip(items, mine, strict=True)}


def squared_norm(gift: dict[object, int], one: int) -> Fraction:
    """The square of what one person moves the sums by."""
    return sum((Fraction(given, one) ** 2 for given in gift.values()), Fraction(0))
