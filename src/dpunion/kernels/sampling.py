"""Coins and normals from pseudo-random words: exact Bernoulli draws, normals right far into the tail.

A row of words is one 128-bit uniform integer U = words[i, 0]·2⁶⁴ + words[i, 1].
"""

from __future__ import annotations

import math

import numpy as np

from dpunion.contributions import Bools, Float64s, Uint64s
from dpunion.kernels.compiler import kernel
from dpunion.kernels.normal import SQRT_HALF, upper_tail

U1 = np.uint64(1)
TWO_64, TWO_MINUS_64 = 2.0**64, 2.0**-64
SQRT_2 = math.sqrt(2.0)
INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
# √½ as a sum of a 26-bit number and the rest: products with 26-bit numbers are exact.
SQRT_HALF_HIGH = math.floor(SQRT_HALF * 2.0**26) / 2.0**26
SQRT_HALF_LOW = (0.5 - SQRT_HALF_HIGH * SQRT_HALF_HIGH) / (SQRT_HALF_HIGH + SQRT_HALF)
SPLITTER = 2.0**27 + 1.0


@kernel
def hits(probability: float, high: np.uint64, low: np.uint64) -> bool:
    """Say whether U < floor(probability · 2¹²⁸), exactly.

    Scaling by 2⁶⁴ and subtracting the integer part are both exact in float64, so no rounding occurs:
    Pr[hit] is the probability rounded down to a multiple of 2⁻¹²⁸. Not a number never hits.
    """
    if probability >= 1.0:
        return True
    if not probability > 0.0:
        return False
    scaled = probability * TWO_64
    whole = np.floor(scaled)  # subtle: not math.floor, which numba makes an int64; this may be 2⁶³ and more
    bound_high = np.uint64(whole)
    if high != bound_high:
        return bool(high < bound_high)
    return bool(low < np.uint64((scaled - whole) * TWO_64))


@kernel
def coin(prob_small: Float64s, release_when_hit: Bools, words: Uint64s) -> Bools:
    """Toss one exact coin per item: released = (hit with probability prob_small) XOR not release_when_hit.

    prob_small: float64[n], the smaller of the two outcomes' probabilities, so that both outcomes have full
    relative precision; release_when_hit: bool[n], whether that outcome is "released"; words: uint64[n, 2].

    Guarantees:
    - the decision of item i depends on row i alone;
    - the smaller outcome's probability is prob_small less at most 2⁻¹²⁸;
    - a probability that is not a number releases nothing.
    """
    released = np.empty(len(prob_small), dtype=np.bool_)
    for i in range(len(prob_small)):
        hit = hits(prob_small[i], words[i, 0], words[i, 1])
        released[i] = hit == release_when_hit[i] and not math.isnan(prob_small[i])
    return released


@kernel
def decide_gaussian(weights: Float64s, threshold: float, stddev: float, words: Uint64s) -> Bools:
    """Release item i with probability Pr[weight + N(0, stddev²) > threshold] ([JPC] Algorithm 1).

    weights: float64[n]; words: uint64[n, 2]; returns bool[n].

    Guarantees:
    - the decision of item i depends on row i alone;
    - no noisy number exists: the rarer outcome is tossed with its exact tail probability;
    - a weight that is not a number is not released.
    """
    released = np.empty(len(weights), dtype=np.bool_)
    for i in range(len(weights)):
        above = (weights[i] - threshold) / stddev
        hit = hits(upper_tail(abs(above)), words[i, 0], words[i, 1])
        # Above the threshold the rarer outcome is "not released", below it is "released".
        released[i] = not hit if above > 0.0 else hit
    return released


@kernel
def decide_laplace(weights: Float64s, threshold: float, scale: float, words: Uint64s) -> Bools:
    """Release item i with probability Pr[weight + Laplace(scale) > threshold] ([JPC] Algorithm 1).

    weights: float64[n]; words: uint64[n, 2]; returns bool[n]. The tail is ½·exp(−x/scale) for x ≥ 0.

    Guarantees: the decision of item i depends on row i alone, as in decide_gaussian.
    """
    released = np.empty(len(weights), dtype=np.bool_)
    for i in range(len(weights)):
        above = (weights[i] - threshold) / scale
        hit = hits(0.5 * math.exp(-abs(above)), words[i, 0], words[i, 1])
        released[i] = not hit if above > 0.0 else hit
    return released


@kernel
def inverse_upper_tail_centre(q: float) -> float:
    """Return x with Pr[0 < Z < x] = q for |q| <= 0.425 (Wichura 1988, algorithm AS 241, PPND16)."""
    r = 0.180625 - q * q
    top = 2.5090809287301226727e3
    for c in (
        3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4, 1.3731693765509461125e4,
        1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0,
    ):  # fmt: skip
        top = top * r + c
    bottom = 5.2264952788528545610e3
    for c in (
        2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4, 5.3941960214247511077e3,
        6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
    ):  # fmt: skip
        bottom = bottom * r + c
    return q * top / bottom


@kernel
def inverse_upper_tail_far(p: float) -> float:
    """Return x with Pr[Z > x] = p for 0 < p <= 0.075 (Wichura 1988, algorithm AS 241, PPND16)."""
    r = math.sqrt(-math.log(p))
    if r <= 5.0:
        r -= 1.6
        top = 7.74545014278341407640e-4
        for c in (
            2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
            3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0,
            1.42343711074968357734e0,
        ):  # fmt: skip
            top = top * r + c
        bottom = 1.05075007164441684324e-9
        for c in (
            5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
            6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0,
        ):  # fmt: skip
            bottom = bottom * r + c
        return top / bottom
    r -= 5.0
    top = 2.01033439929228813265e-7
    for c in (
        2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
        2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0,
        6.65790464350110377720e0,
    ):  # fmt: skip
        top = top * r + c
    bottom = 2.04426310338993978564e-15
    for c in (
        1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
        1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0,
    ):  # fmt: skip
        bottom = bottom * r + c
    return top / bottom


@kernel
def sqrt_half_error(x: float) -> float:
    """Return x·√½ minus its float64 value, by Veltkamp's splitting (Dekker 1971)."""
    shifted = x * SPLITTER
    x_high = shifted - (shifted - x)
    x_low = x - x_high
    error = x_high * SQRT_HALF_HIGH - x * SQRT_HALF
    return error + x_low * SQRT_HALF_HIGH + x_high * SQRT_HALF_LOW + x_low * SQRT_HALF_LOW


@kernel
def inverse_upper_tail(p: float) -> float:
    """Return x with Pr[Z > x] = p, for p in [0, 1]: AS 241, then one Newton step on the tail itself.

    Pr[Z > x] is off by little more than rounding x costs: relative 1.2·10⁻¹⁴ at 13 stddevs, 1.4·10⁻¹³ at p = 10⁻³⁰⁰.
    """
    # 1 - p has no rounding when p > 0.5.
    smaller, sign = (1.0 - p, -1.0) if p > 0.5 else (p, 1.0)
    if smaller <= 0.0:
        return sign * math.inf
    x = inverse_upper_tail_far(smaller) if smaller <= 0.075 else inverse_upper_tail_centre(0.5 - smaller)
    density = INVERSE_SQRT_2PI * math.exp(-0.5 * x * x)
    if density > 1e-305:
        # subtle: upper_tail works with the rounded x·√½; far out that rounding is the largest error of all.
        x += (upper_tail(x) - smaller) / density - sqrt_half_error(x) * SQRT_2
    return sign * x


@kernel
def normals(words: Uint64s) -> Float64s:
    """Return one standard normal per row: the lowest bit of the first word is the sign, the others the tail.

    words: uint64[n, 2]; returns float64[n]. With T the other 127 bits, |z| has the tail probability
    2·(T + ½)·2⁻¹²⁸, so the largest draws are beyond 13 standard deviations.

    Guarantees: the draw of item i depends on row i alone.
    """
    out = np.empty(len(words), dtype=np.float64)
    for i in range(len(words)):
        # The low word matters where the high one is small, that is in the far tail.
        fraction = (np.float64(words[i, 1]) + 0.5) * TWO_MINUS_64
        size = inverse_upper_tail((np.float64(words[i, 0] >> U1) + fraction) * TWO_MINUS_64)
        out[i] = size if words[i, 0] & U1 else -size
    return out
