"""The algorithms: one frozen description each.

A description has public parameters only. It says how many items of a user count, and how far one user can move the
weights (sensitivity). `plans` turns a description into noise and thresholds, and `mechanisms` runs it.
docs/adding-a-policy.md shows how to add one. The names are those of the papers:

- Count*, Weighted*, PolicyLaplace, PolicyGaussian: Gopi et al., "Differentially Private Set Union", ICML 2020
  (journal version arXiv 2002.09745);
- DpSips: Swanberg et al., "DP-SIPS", PoPETs 2023; OptimalSingleItem: Desfontaines et al., "Differentially private
  partition selection", PoPETs 2022;
- Funnel: dpunion's own; several rounds that drop hopeless items.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from dpunion.checks import as_choice, check_real, check_whole, refuse_choice, refuse_policy
from dpunion.errors import BadParameter

LARGEST_MAX_ITEMS = 10_000
LARGEST_PASSES = 16
LARGEST_RESERVE = 0.5
MAX_ITEMS = 2**31 - 1  # items have 32-bit numbers


class Calibration(enum.Enum):
    """Where the constants come from."""

    EXACT = "exact"
    PUBLISHED = "published"


class UserOrder(enum.Enum):
    """The order in which a policy visits the users; a user's place depends on that user's own data and the run key."""

    RANDOM = "random"
    SMALLEST_FIRST = "smallest-first"


class Norm(enum.Enum):
    """How to measure the distance of two histograms."""

    L1 = "l1"
    L2 = "l2"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far adding or removing one user can move the weights."""

    norm: Norm
    bound: float


@dataclass(frozen=True, slots=True)
class Bounding:
    """How many items of a user are kept, drawn at random first, and the order in which users are visited."""

    limit: int
    order: UserOrder = UserOrder.RANDOM


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The base of all descriptions.

    max_items_per_user: at most this many items of a user count, drawn at random first. With more, users who have many
    items support more of them, but each item gets less of the user's weight. Public: never tune it on the data.
    """

    name: ClassVar[str]
    noise: ClassVar[str]
    norm: ClassVar[Norm]  # a class that declares it claims that one user moves the weights by at most 1 in it
    max_items_per_user: int = 100

    def __post_init__(self) -> None:
        check_whole(self.name, "max_items_per_user", self.max_items_per_user, 1, LARGEST_MAX_ITEMS)

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one user can move the weights; the noise is calibrated to it, and `decide` checks it."""
        return Sensitivity(self.norm, 1.0)

    @property
    def bounding(self) -> Bounding:
        """Return how to bound and order users' sets before the first round."""
        return Bounding(self.max_items_per_user)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as plain values."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {key: value.value if isinstance(value, enum.Enum) else value for key, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calibrated(Algorithm):
    """An algorithm with a choice of constants.

    calibration: "exact" spends the whole delta once, "published" splits it as the papers do. Laplace noise has only
    the published constants: they are exact already.
    """

    calibration: Calibration = Calibration.EXACT

    def __post_init__(self) -> None:
        Algorithm.__post_init__(self)
        object.__setattr__(self, "calibration", as_choice("calibration", self.calibration, Calibration))
        if self.noise == "laplace" and self.calibration is Calibration.EXACT:
            raise BadParameter(
                f"{self.name} has no separate exact calibration: its published constants are already exact.",
                "Leave 'calibration' out, or choose a Gaussian algorithm.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountLaplace(_Calibrated):
    """Each user adds 1 to each kept item; Laplace noise."""

    name: ClassVar[str] = "count-laplace"
    noise: ClassVar[str] = "laplace"

    calibration: Calibration = Calibration.PUBLISHED

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(Norm.L1, float(self.max_items_per_user))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountGaussian(_Calibrated):
    """Each user adds 1 to each kept item; Gaussian noise."""

    name: ClassVar[str] = "count-gaussian"
    noise: ClassVar[str] = "gaussian"

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(Norm.L2, math.sqrt(self.max_items_per_user))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedLaplace(_Calibrated):
    """Each user spreads 1 evenly over the kept items; Laplace noise."""

    name: ClassVar[str] = "weighted-laplace"
    noise: ClassVar[str] = "laplace"
    norm: ClassVar[Norm] = Norm.L1

    calibration: Calibration = Calibration.PUBLISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedGaussian(_Calibrated):
    """Each user adds 1/sqrt(number of kept items) to each; Gaussian noise."""

    name: ClassVar[str] = "weighted-gaussian"
    noise: ClassVar[str] = "gaussian"
    norm: ClassVar[Norm] = Norm.L2


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentPolicy(_Calibrated):
    """Users in turn raise their items toward a cutoff, by a distance of 1 in the norm; docs/guarantees.md, section 4.

    Parameters as in PolicyLaplace. safe_margin: the margin of the last pass, which spends the reserve.
    """

    safe_margin: ClassVar[float]

    cutoff_margin: float = 3.0
    passes: int = 1
    user_order: UserOrder = UserOrder.RANDOM
    reserve: float = 0.0

    def __post_init__(self) -> None:
        _Calibrated.__post_init__(self)
        margin = check_real(self.name, "cutoff_margin", self.cutoff_margin, 0.0, 20.0)
        check_whole(self.name, "passes", self.passes, 1, LARGEST_PASSES)
        reserve = check_real(self.name, "reserve", self.reserve, 0.0, LARGEST_RESERVE, "0.1 is enough.")
        object.__setattr__(self, "cutoff_margin", margin)
        object.__setattr__(self, "reserve", reserve)
        object.__setattr__(self, "user_order", as_choice("user_order", self.user_order, UserOrder))

    @property
    def bounding(self) -> Bounding:
        return Bounding(self.max_items_per_user, self.user_order)

    def visits(self, scale: float, threshold: float) -> tuple[tuple[float, float], ...]:
        """Return (Γ, B) of each pass: the cutoff, and the part of everybody's budget; the parts sum to 1.

        The last pass spends the reserve. Noise practically never brings an item at its cutoff below the threshold.
        """
        first = (threshold + self.cutoff_margin * scale, (1.0 - self.reserve) / self.passes)
        last = (threshold + max(self.cutoff_margin, self.safe_margin) * scale, self.reserve)
        return (first,) * self.passes + ((last,) if self.reserve else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLaplace(DescentPolicy):
    """Users in turn raise their lowest-gap items evenly toward a cutoff (l1-descent); Laplace noise.

    cutoff_margin: the cutoff lies this many noise scales above the threshold; more makes popular items safer, less
    leaves more weight for the others. passes: rounds over the users, each with an equal part of their budget.
    user_order: which users go first. reserve: the part of everybody's budget that goes to one more pass, toward a
    higher cutoff, so that no very popular item is missing by chance; 0 as published.
    """

    name: ClassVar[str] = "policy-laplace"
    noise: ClassVar[str] = "laplace"
    norm: ClassVar[Norm] = Norm.L1
    safe_margin: ClassVar[float] = 15.0

    calibration: Calibration = Calibration.PUBLISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGaussian(DescentPolicy):
    """Users in turn move their items straight toward a cutoff by l2 distance 1 (l2-descent); Gaussian noise.

    Parameters as in PolicyLaplace.
    """

    name: ClassVar[str] = "policy-gaussian"
    noise: ClassVar[str] = "gaussian"
    norm: ClassVar[Norm] = Norm.L2
    safe_margin: ClassVar[float] = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel(Algorithm):
    """Several noisy rounds; each drops hopeless items and gives weight where the others need it.

    The proof is in docs/guarantees-funnel.md, which calls keep_fraction κ, keep_margin z, cutoff_margin α and haste λ.

    rounds: more rounds aim better but each is noisier. first_share: the part of the (squared) budget for the first
    round, which finds out which items are hopeless; more also lowers the price of novel items. keep_fraction,
    keep_margin: an item stays while its score exceeds keep_fraction times its even part of the threshold, minus
    keep_margin standard deviations; a higher line drops more items earlier. cutoff_margin: as in PolicyGaussian, in
    standard deviations of the noise still to come. haste: each round but the last aims to give items this many times
    the round's even part of what they need; more finishes popular items earlier and leaves later rounds to rare ones.
    user_order: smallest-first lets users with few items, who have no choice, go first.
    """

    name: ClassVar[str] = "funnel"
    noise: ClassVar[str] = "gaussian"
    norm: ClassVar[Norm] = Norm.L2

    max_items_per_user: int = 300
    rounds: int = 8
    first_share: float = 0.2
    keep_fraction: float = 1.4
    keep_margin: float = 3.0
    cutoff_margin: float = 2.2
    haste: float = 1.8
    user_order: UserOrder = UserOrder.SMALLEST_FIRST

    def __post_init__(self) -> None:
        Algorithm.__post_init__(self)
        check_whole(self.name, "max_items_per_user", self.max_items_per_user, 1, 1000)
        check_whole(self.name, "rounds", self.rounds, 1, 8)
        ranges = {"first_share": (0.01, 1.0), "keep_fraction": (0.0, 2.0), "keep_margin": (0.0, 10.0)}
        for name, (low, high) in (ranges | {"cutoff_margin": (0.0, 20.0), "haste": (1.0, 20.0)}).items():
            object.__setattr__(self, name, check_real(self.name, name, getattr(self, name), low, high))
        if (self.rounds == 1) != (self.first_share == 1.0):
            raise BadParameter(
                f"A 'first_share' of {self.first_share:g} does not fit {self.rounds} rounds of {self.name}.",
                "A single round takes a first_share of 1; several rounds need one below 1.",
            )
        object.__setattr__(self, "user_order", as_choice("user_order", self.user_order, UserOrder))

    @property
    def bounding(self) -> Bounding:
        return Bounding(self.max_items_per_user, self.user_order)

    @property
    def squared_shares(self) -> tuple[float, ...]:
        """c_r² for r = 1..rounds: each round's part of the budget; they sum to 1."""
        if self.rounds == 1:
            return (1.0,)
        return (self.first_share, *[(1.0 - self.first_share) / (self.rounds - 1)] * (self.rounds - 1))

    @property
    def shares(self) -> tuple[float, ...]:
        """c_r: the l2 budget of each round."""
        return tuple(math.sqrt(share) for share in self.squared_shares)

    @property
    def spent(self) -> tuple[float, ...]:
        """f_r = c_1² + … + c_r²; exactly 1 in the last round."""
        squares = self.squared_shares
        return (*[math.fsum(squares[: r + 1]) for r in range(self.rounds - 1)], 1.0)

    @property
    def remaining(self) -> tuple[float, ...]:
        """rem_r = c_r² + … + c_R²."""
        squares = self.squared_shares
        return tuple(math.fsum(squares[r:]) for r in range(self.rounds))

    @property
    def aims(self) -> tuple[float, ...]:
        """min(λ c_r/rem_r, 1/c_r): what each round aims to give an item, for each unit that the item needs.

        With 1/c_r the round alone would lift the score to the cutoff, so no aim is larger; the last always has 1/c_r.
        """
        parts = zip(self.shares, self.remaining, strict=True)
        return tuple(min(self.haste * share / rest, 1.0 / share) for share, rest in parts)

    def keep_lines(self, stddev: float, threshold: float) -> tuple[float, ...]:
        """κ f_r ρ − z σ √f_r for r = 1..rounds-1: an item stays alive while its score is above them.

        A line is at most ρ − 1.01 c_r σ, so that it stays clearly below the threshold.
        """
        return tuple(
            min(
                self.keep_fraction * done * threshold - self.keep_margin * stddev * math.sqrt(done),
                threshold - 1.01 * share * stddev,
            )
            for share, done in zip(self.shares[:-1], self.spent[:-1], strict=True)
        )

    @property
    def for_listed(self) -> Funnel:
        """The shape for items of a public list: the same rounds and budgets, sharper lines and more haste.

        Nothing is paid for novel items there, so lines may be sharper; without more haste, popular items would be lost
        at them. Tuned on public data (docs/guarantees-funnel.md, section 11).
        """
        margin = min(2.0, self.keep_margin)
        return dataclasses.replace(self, keep_fraction=1.4, keep_margin=margin, cutoff_margin=2.2, haste=2.4)

    def cutoffs(self, stddev: float, threshold: float) -> tuple[float, ...]:
        """ρ + ασ√rem_r: the score that an item needs in each round; it depends on the noise still to come."""
        return tuple(threshold + self.cutoff_margin * stddev * math.sqrt(rest) for rest in self.remaining)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSips(Algorithm):
    """Weighted Gaussian in rounds of growing budget; released items take no further part (Swanberg et al. 2023).

    rounds: the number of rounds. share_ratio: each round's share of the budget over that of the next.
    """

    name: ClassVar[str] = "dp-sips"
    noise: ClassVar[str] = "gaussian"
    norm: ClassVar[Norm] = Norm.L2
    rounds: int = 3
    share_ratio: float = 0.3

    def __post_init__(self) -> None:
        Algorithm.__post_init__(self)
        check_whole(self.name, "rounds", self.rounds, 1, 8)
        ratio = check_real(self.name, "share_ratio", self.share_ratio, 0.05, 1.0)
        object.__setattr__(self, "share_ratio", ratio)

    @property
    def shares(self) -> tuple[float, ...]:
        """Return each round's part of the budget; they sum to 1."""
        raw = [self.share_ratio ** (self.rounds - 1 - i) for i in range(self.rounds)]
        return tuple(share / sum(raw) for share in raw)

    @property
    def bounding(self) -> Bounding:
        """Return no limit: each round draws items again."""
        return Bounding(MAX_ITEMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalSingleItem(Algorithm):
    """One random item of each user, released with the largest private probability (Desfontaines et al. 2022)."""

    name: ClassVar[str] = "optimal-single-item"
    noise: ClassVar[str] = "truncated-geometric"
    norm: ClassVar[Norm] = Norm.L1

    max_items_per_user: int = 1

    def __post_init__(self) -> None:
        Algorithm.__post_init__(self)
        check_whole(self.name, "max_items_per_user", self.max_items_per_user, 1, 1)


ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        Funnel,
        PolicyGaussian,
        PolicyLaplace,
        WeightedGaussian,
        WeightedLaplace,
        CountGaussian,
        CountLaplace,
        DpSips,
        OptimalSingleItem,
    )
}
"""Every algorithm by its name, in the order in which help texts list them. A new algorithm is one more entry."""


def algorithm_named(name: str, /, **parameters: Any) -> Algorithm:
    """Build the algorithm called `name`; refuse parameters that it does not have."""
    kind = ALGORITHMS.get(name)
    if kind is None:
        refuse_policy(name)
        refuse_choice("algorithm", name, ALGORITHMS)
    known = [field.name for field in dataclasses.fields(kind)]
    for one in (one for one in parameters if one not in known):
        raise BadParameter(f"{name} has no parameter {one!r}.", f"It has: {', '.join(known)}. Leave {one!r} out.")
    return kind(**parameters)
