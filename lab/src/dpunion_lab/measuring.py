"""What trials come to: means, spreads, coverage, and how far two means lie apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpunion.calibration.bounds import ceiling
from dpunion_lab.data import COVERAGE, LabData
from dpunion_lab.figures import deviation
from dpunion_lab.rows import DELTA
from dpunion_lab.trials import Setting, Trial


@dataclass(frozen=True, slots=True)
class Measured:
    """Trials by setting, on one set of data. comparable: whether the data is of the papers' size."""

    data: LabData
    trials: Mapping[Setting, Sequence[Trial]]
    comparable: bool

    def size(self, setting: Setting) -> float:
        """Return the mean number of items released."""
        return statistics.fmean(trial.size for trial in self.trials[setting])

    def spread(self, setting: Setting) -> float:
        """Return the standard deviation over the trials, in the population form that the papers print."""
        return statistics.pstdev(trial.size for trial in self.trials[setting])

    def coverage(self, setting: Setting) -> list[float]:
        """Return the mean part of the items with at least k holders that is released, for each k."""
        counts = zip(*(trial.covered for trial in self.trials[setting]), strict=True)
        return [statistics.fmean(found) / total for found, total in zip(counts, self._held(), strict=True)]

    def quotients(self, setting: Setting) -> list[float]:
        """Return the size of the release over the number of items with at least k holders, as the papers print it."""
        return [self.size(setting) / total for total in self._held()]

    def ceiling(self, epsilon: float) -> float:
        """Return what no private algorithm exceeds in expectation."""
        return ceiling(epsilon, DELTA, self.data.holders.astype(np.float64))

    def deviation(self, here: float | None, printed: float | None) -> str | None:
        """Write the deviation, where the two are about data of one size."""
        return deviation(here, printed) if self.comparable else None

    def p_value(self, first: Setting, second: Setting) -> float | None:
        """Return how likely two means lie so far apart by chance; one trial does not tell."""
        count = len(self.trials[first])
        if count < 2:
            return None
        return student_test(
            (self.size(first), self.spread(first)), (self.size(second), self.spread(second)), trials=count
        )

    def _held(self) -> list[int]:
        return [max(1, int(np.count_nonzero(self.data.holders >= k))) for k in COVERAGE]


def sort_by_setting(trials: Sequence[Trial]) -> dict[Setting, list[Trial]]:
    """Return the trials of each setting."""
    found: dict[Setting, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.setting, []).append(trial)
    return found


def student_test(first: tuple[float, float], second: tuple[float, float], *, trials: int) -> float:
    """Return the two-sided p-value of Student's t-test for two means with population deviations, alike in number.

    The degrees of freedom, 2 trials - 2, are even, so the distribution is a finite sum (Abramowitz and Stegun 26.7.4).
    """
    apart = abs(first[0] - second[0])
    error = math.sqrt((first[1] ** 2 + second[1] ** 2) / (trials - 1))
    if error == 0.0:
        return 1.0 if apart == 0.0 else 0.0
    freedom = 2 * trials - 2
    angle = math.atan(apart / error / math.sqrt(freedom))
    term, total = 1.0, 1.0
    for at in range(1, freedom // 2):
        term *= (2 * at - 1) / (2 * at) * math.cos(angle) ** 2
        total += term
    return 1.0 - math.sin(angle) * total
