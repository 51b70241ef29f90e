"""Where a Funnel calibration may start: remembered numbers that are never trusted.

A first plan searches for the smallest certified threshold, which takes a second or two. What it found is kept, in
memory and in the user's private cache directory, as a hint: the next plan evaluates the certificate anew at the
hint and searches again when it does not hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import astuple
from pathlib import Path

from dpunion.algorithms import Funnel
from dpunion.calibration.funnel import FunnelCalibration, FunnelHints, calibrate_funnel
from dpunion.errors import CannotWrite
from dpunion.files import atomic_file
from dpunion.kernels.compiler import cache_directory


def calibrate_with_hints(
    epsilon: float,
    delta: float,
    shape: Funnel,
    *,
    extra_mu_squared: float = 0.0,
    gaussian_share: float | None = None,
) -> FunnelCalibration:
    """Return the calibration of a funnel, starting from what an earlier process found."""
    path = _place(epsilon, delta, shape, extra_mu_squared, gaussian_share)
    known = _read(path)
    found = calibrate_funnel(
        epsilon, delta, shape, extra_mu_squared=extra_mu_squared, gaussian_share=gaussian_share, hints=known
    )
    if path is not None and found.hints != known:
        _write(path, found.hints)
    return found


def _place(epsilon: float, delta: float, shape: Funnel, extra: float, share: float | None) -> Path | None:
    directory = cache_directory()
    if directory is None:
        return None
    composed = () if share is None else (extra, share)
    digest = hashlib.sha256(repr((epsilon, delta, astuple(shape), *composed)).encode()).hexdigest()[:32]
    return directory / f"funnel-{digest}.json"


def _read(path: Path | None) -> FunnelHints | None:
    """Read a hint; anything unreadable or odd is no hint."""
    if path is None:
        return None
    try:
        values = json.loads(path.read_text())
        return FunnelHints(float(values["stddev"]), float(values["threshold"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, hints: FunnelHints) -> None:
    text = json.dumps({"stddev": hints.stddev, "threshold": hints.threshold})
    with contextlib.suppress(CannotWrite), atomic_file(path) as file:
        file.write(text.encode())
