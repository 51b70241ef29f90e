"""The only randomness of dpunion: a keyed function of (run key, purpose, round, item bytes).

    run key ── subkey(purpose, round) ──┬── digests: 128-bit keyed BLAKE2b of a name, once per distinct name
     32 bytes   keyed BLAKE2b           └── words: ChaCha20 block of a digest, once per purpose and round

Why this is enough:
- BLAKE2b with a secret key is a pseudo-random function, so the subkeys of different purposes and rounds are
  independent for everybody who does not have the run key, and so are the draws made with them.
- The ChaCha20 block function under a secret key is a pseudo-random function of its 128-bit input, counter and
  nonce together: distinct digests give independent uniform words.
- Two of n names share a digest, and hence their draws, with probability at most n²/2¹²⁹: 2⁻⁶⁹ for 2³⁰ names.
  Digests serve for nothing else; names are compared by their bytes.
- A draw is a function of the name, so it exists for items that nobody has, does not depend on the order of rows,
  is the same on every engine and is unchanged when a task is retried.

The run key comes from the operating system, lives in memory only and serves one release: a second release
with the same key would repeat the draws of the first.
"""

from __future__ import annotations

import enum
import hashlib
import os
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from dpunion.contributions import Bools, Float64s, Uint64s
from dpunion.errors import BadParameter, InternalError
from dpunion.kernels import hashing, sampling

KEY_BYTES = 32
PERSON = b"dpunion"


class Purpose(enum.Enum):
    """What draws are for; each purpose has its own independent subkeys."""

    USER = "user"
    """Digesting user ids; the digests are also the random order of the users."""
    ITEM = "item"
    """Digesting item names."""
    BOUND = "bound"
    """Which items of a user are kept: words of the user's digest are that user's key for `siphash24`."""
    COIN = "coin"
    """Deciding which items are released."""
    NOISE = "noise"
    """Gaussian noise per round."""
    SPURIOUS = "spurious"
    """Which listed items, and which n-grams, come out although nobody has them."""
    SHARD = "shard"
    """Which shard a user belongs to."""
    COUNT = "count"
    """Gaussian noise of the numbers of people, for each step; its input is a place on the public list."""


class RunKey:
    """The secret of one run: 32 bytes from which every draw follows.

    Guarantees:
    - a fresh key is operating system entropy, different in every process, also after a fork;
    - no byte of the key appears in repr, str, format or an error;
    - keys compare by identity, never by their bytes;
    - a key is neither pickled nor copied, except through export_for_closure;
    - `is_test` marks a key for tests, also on a worker.
    """

    __slots__ = ("_is_test", "_secret")

    def __init__(self, secret: bytes, *, is_test: bool) -> None:
        if len(secret) != KEY_BYTES:
            raise InternalError(f"a run key has {KEY_BYTES} bytes, not {len(secret)}")
        self._secret = secret
        self._is_test = is_test

    @classmethod
    def fresh(cls) -> RunKey:
        """Draw the key of one release from the operating system."""
        return cls(os.urandom(KEY_BYTES), is_test=False)

    @classmethod
    def for_run(cls, unsafe_test_key: int | None) -> RunKey:
        """Return a fresh key, or, for tests, the one of this number."""
        return cls.fresh() if unsafe_test_key is None else cls.for_tests(unsafe_test_key)

    @classmethod
    def for_tests(cls, seed: int) -> RunKey:
        """Return the same key for the same seed; what it draws is NOT PRIVATE."""
        secret = hashlib.blake2b(str(int(seed)).encode(), digest_size=KEY_BYTES, person=b"dpunion-test")
        return cls(secret.digest(), is_test=True)

    @property
    def is_test(self) -> bool:
        """Whether the key came from a seed, so that results must be stamped NOT PRIVATE."""
        return self._is_test

    def __repr__(self) -> str:
        return "RunKey(for tests, NOT PRIVATE)" if self._is_test else "RunKey(secret)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise BadParameter(
            "A run key is secret and is not pickled or copied.",
            "Pass the same object, or send `key.export_for_closure()` to a worker of the same run.",
        )

    def export_for_closure(self) -> ClosureKey:
        """Return the key in a form that pickles, for a task closure of the same run and for nothing else.

        Anybody who can read the pickled closure can undo the privacy of the release: it must go to workers over
        the engine's own channel, and never to a file, a configuration or a log.
        """
        return ClosureKey(self._secret, self._is_test)

    @classmethod
    def from_closure(cls, exported: ClosureKey) -> RunKey:
        """Return the key that export_for_closure put into a worker's closure."""
        return cls(exported._secret, is_test=exported._is_test)  # noqa: SLF001 - the pair is one unit

    def subkey(self, purpose: Purpose, round: int = 0) -> bytes:
        """Return the 32-byte key of one purpose and round: BLAKE2b keyed with the run key.

        The message is the purpose's name, a zero byte, and the round as eight bytes little-endian. Names contain
        no zero byte, so different (purpose, round) never give the same message.
        """
        if not 0 <= round < 2**64:
            raise InternalError("a round is a number from 0 to 2**64 - 1")
        message = purpose.value.encode() + b"\0" + int(round).to_bytes(8, "little")
        return hashlib.blake2b(message, digest_size=KEY_BYTES, key=self._secret, person=PERSON).digest()

    def digests(self, purpose: Purpose, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Uint64s:
        """Return the 128-bit keyed BLAKE2b digest of each name, by the purpose's subkey of round 0.

        offsets: int64[n+1]; data: uint8[]; name i is data[offsets[i]:offsets[i+1]]; returns uint64[n, 2],
        each row the 16 bytes little-endian.

        Guarantees:
        - equal names have equal digests;
        - without the key a digest says nothing about the name.
        """
        if offsets.dtype != np.int64 or data.dtype != np.uint8 or offsets.ndim != 1 or data.ndim != 1:
            raise InternalError("strings are int64 offsets and uint8 data")
        # A kernel would read outside the data.
        if len(offsets) == 0 or offsets[0] < 0 or offsets[-1] > len(data) or np.any(offsets[1:] < offsets[:-1]):
            raise InternalError("the offsets of strings do not fit their data")
        key = np.frombuffer(self.subkey(purpose), dtype="<u8").astype(np.uint64)
        return hashing.blake2b_digests(offsets, data, key)

    def words(self, purpose: Purpose, round: int, digests: Uint64s) -> Uint64s:
        """Return 128 pseudo-random bits for each digest: the first 16 bytes of its ChaCha20 block.

        digests: uint64[n, 2], used as counter || nonce; returns uint64[n, 2]. The key is the subkey of
        (purpose, round); the module says why this is enough. Any distinct 128-bit inputs will do as digests.

        Guarantees:
        - row i depends on the run key, the purpose, the round and digests[i] alone.
        """
        if digests.dtype != np.uint64 or digests.ndim != 2 or digests.shape[1] != 2:
            raise InternalError("digests are uint64[n, 2]")
        key = np.frombuffer(self.subkey(purpose, round), dtype="<u4").astype(np.uint32)
        return hashing.chacha20_words(key, digests)

    def normals(self, round: int, digests: Uint64s, purpose: Purpose = Purpose.NOISE) -> Float64s:
        """Return one standard normal for each digest, by the purpose and the round.

        digests: uint64[n, 2]; returns float64[n].

        Guarantees:
        - the draw of an item depends on the run key, the purpose, the round and its digest alone;
        - tail probabilities are right to a relative 1.2·10⁻¹⁴, out to 13 standard deviations.
        """
        return sampling.normals(self.words(purpose, round, digests))

    def decide_gaussian(
        self, round: int, digests: Uint64s, weights: Float64s, *, threshold: float, stddev: float
    ) -> Bools:
        """Release item i with probability Pr[weight + N(0, stddev²) > threshold], by the round's COIN draws.

        digests: uint64[n, 2]; weights: float64[n]; returns bool[n].

        Guarantees:
        - the decision of an item depends on the run key, the round, its digest and its weight alone;
        - weights and parameters that are not finite are refused.
        """
        check_decision(digests, weights, threshold, stddev)
        words = self.words(Purpose.COIN, round, digests)
        return sampling.decide_gaussian(weights, float(threshold), float(stddev), words)

    def decide_laplace(
        self, round: int, digests: Uint64s, weights: Float64s, *, threshold: float, scale: float
    ) -> Bools:
        """Release item i with probability Pr[weight + Laplace(scale) > threshold], by the round's COIN draws.

        digests: uint64[n, 2]; weights: float64[n]; returns bool[n]. It guarantees the same as decide_gaussian.
        """
        check_decision(digests, weights, threshold, scale)
        words = self.words(Purpose.COIN, round, digests)
        return sampling.decide_laplace(weights, float(threshold), float(scale), words)

    def coins(self, round: int, digests: Uint64s, prob_small: Float64s, release_when_hit: Bools) -> Bools:
        """Toss one exact coin per item, by Purpose.COIN and the round.

        digests: uint64[n, 2]; prob_small: float64[n], the probability of the rarer outcome; release_when_hit:
        bool[n], whether that outcome is "released"; returns bool[n].

        Guarantees:
        - the decision of an item depends on the run key, the round, its digest and its own row alone;
        - the rarer outcome's probability is exact to 2⁻¹²⁸;
        - probabilities outside [0, 1] are refused.
        """
        words = self.words(Purpose.COIN, round, digests)
        if not len(words) == len(prob_small) == len(release_when_hit):
            raise InternalError("coins need one probability and one side per item")
        # subtle: written so that a NaN fails the test.
        if not np.all((prob_small >= 0.0) & (prob_small <= 1.0)):
            raise InternalError("a probability is not within [0, 1]")
        return sampling.coin(prob_small, release_when_hit, words)

    def marks(self, draw_round: int, digests: Uint64s, chance: float) -> Bools:
        """Mark each digest with probability `chance`, by Purpose.SPURIOUS and the round; returns bool[n].

        Guarantees: a mark depends on the run key, the round and the digest alone; the chance is exact to 2⁻¹²⁸.
        """
        if not 0.0 <= chance <= 1.0:
            raise InternalError("a probability is not within [0, 1]")
        words = self.words(Purpose.SPURIOUS, draw_round, digests)
        return sampling.coin(np.full(len(words), chance), np.ones(len(words), np.bool_), words)


class ClosureKey:
    """A run key on its way to a worker, which can be pickled but does not show itself.

    Guarantees:
    - no byte of the key appears in repr, str or format.
    """

    __slots__ = ("_is_test", "_secret")

    def __init__(self, secret: bytes, is_test: bool) -> None:  # noqa: FBT001 - called by pickle
        self._secret = secret
        self._is_test = is_test

    def __repr__(self) -> str:
        return "ClosureKey(secret)"

    def __reduce__(self) -> tuple[type[ClosureKey], tuple[bytes, bool]]:
        return ClosureKey, (self._secret, self._is_test)


def check_decision(digests: Uint64s, weights: Float64s, threshold: float, spread: float) -> None:
    """Refuse weights or parameters for which a tail probability has no meaning."""
    if len(weights) != len(digests) or weights.dtype != np.float64:
        raise InternalError("a decision needs one float64 weight per item")
    if not (np.isfinite(threshold) and np.isfinite(spread) and spread > 0.0):
        raise InternalError("the threshold must be finite, the spread of the noise finite and positive")
    if not np.all(np.isfinite(weights)):
        raise InternalError("a weight is not finite")
