"""What a token is called outside its process, and what its log-probability is worth.

Token ids are user data: `TokenHasher` names them by a keyed hash, so that both kernels
agree on the name and nobody without the key can read the text.  `classify` gives each
log-probability the one `TokenStatus` under which it is counted; `missing_zeros` finds the
0.0 that some trainers write where nothing was reported.
"""

import hashlib
from typing import Self

import numpy as np
from numpy.typing import NDArray

from paritas.errors import UsageError
from paritas.records import TokenStatus

__all__ = [
    "SENTINEL_NATS",
    "SLACK_NATS",
    "ZERO_RUN_NATS",
    "ZERO_RUN_TOKENS",
    "TokenHasher",
    "as_logged",
    "classify",
    "missing_zeros",
]

# A log-softmax computed as x - logsumexp(x) may come out above zero by rounding: float32
# has 6e-8 of resolution near 1, the sum a few of those.  1e-6 is far above that and far
# below any difference a contract speaks of.
SLACK_NATS = 1e-6

# The OpenAI-compatible servers clamp -inf to -9999.0 because JSON has no infinity, and
# trainers use the same number or the lowest float of their type as a filler.  No softmax
# in float64 over a real vocabulary reaches a probability of e^-9999.  Another common
# filler, +1.0, needs no rule of its own: it is above zero, hence POSITIVE.
SENTINEL_NATS = -9999.0

# See `missing_zeros` for the argument behind both numbers.
ZERO_RUN_TOKENS = 3
ZERO_RUN_NATS = -float(np.log(2.0))

# Largest public vocabularies have about 2^18 entries; the table takes 8 bytes for each.
TABLE_IDS = 1 << 18


class TokenHasher:
    """Keyed BLAKE2b-64 of token ids, the same in every process that holds the key.

    Digests of ids below `table_ids` are kept in one table that never grows (2 MiB), so a
    batch costs one gather; larger ids are hashed each time.  Threads may share a hasher:
    they can only write the same digest to the same place.

    Parameters
    ----------
    key : bytes
        16 to 64 secret bytes.  Both kernels of a policy must use the same.
    table_ids : int
        Ids below this are remembered; at least 1.

    Raises
    ------
    UsageError
        The key is too short to be a secret or longer than BLAKE2b takes.

    Examples
    --------
    >>> hasher = TokenHasher(b"an example key, not a secret one")
    >>> hasher.hash(np.array([7, 7, -1])).tolist()
    [7752663134905654191, 7752663134905654191, 0]
    """

    def __init__(self, key: bytes, *, table_ids: int = TABLE_IDS) -> None:
        if not 16 <= len(key) <= hashlib.blake2b.MAX_KEY_SIZE:
            raise UsageError(
                f"the token key has {len(key)} bytes",
                hint="use 16 to 64 random bytes, the same for both kernels",
            )
        self._key = key
        self._table = np.zeros(table_ids, np.uint64)

    @classmethod
    def from_secret(cls, secret: str) -> Self:
        """Make a hasher from a text of any length, as a configuration file holds it."""
        if not secret:
            raise UsageError("the token secret is empty", hint="use a random text, the same for both kernels")
        return cls(hashlib.blake2b(secret.encode(), digest_size=32, person=b"paritas.tokens").digest())

    def hash(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Name token ids.

        Parameters
        ----------
        ids : any shape, int64
            Negative means absent.

        Returns
        -------
        same shape, uint64
            0 where the id is absent, and nowhere else.
        """
        flat = np.asarray(ids, np.int64).ravel()
        known = (flat >= 0) & (flat < self._table.size)
        self._fill(flat[known])
        digests = np.where(known, self._table[np.where(known, flat, 0)], np.uint64(0))
        large = flat >= self._table.size
        if large.any():
            digests[large] = self._digest_all(flat[large])
        return digests.reshape(np.shape(ids))

    def _fill(self, ids: NDArray[np.int64]) -> None:
        new = np.unique(ids[self._table[ids] == 0])
        if new.size:
            self._table[new] = self._digest_all(new)

    def _digest_all(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        unique, back = np.unique(ids, return_inverse=True)
        return np.array([self._digest(i) for i in unique.tolist()], np.uint64)[back.ravel()]

    def _digest(self, token_id: int) -> int:
        content = token_id.to_bytes(8, "little")
        digest = hashlib.blake2b(content, digest_size=8, key=self._key).digest()
        # 0 says "absent", here and in `TokenTrace.token`; one id in 2^64 shares the name 1.
        return int.from_bytes(digest, "little") or 1


def classify(
    logprob: NDArray[np.float64],
    *,
    missing: NDArray[np.bool_] | None = None,
    masked: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint8]:
    """Give each log-probability its one status.

    The first that applies: MASKED, MISSING, NONFINITE (NaN, -inf, +inf), SENTINEL (-9999 or
    less), POSITIVE (more than `SLACK_NATS` above zero), VALID.  Masked comes first because
    what a forced token's field holds is nobody's measurement.

    Parameters
    ----------
    logprob : shape (n,), float64, nats
    missing : shape (n,), bool, or None
        Where nothing was reported; such an entry of `logprob` may hold anything.
    masked : shape (n,), bool, or None
        Forced or tool tokens, and tokens outside the loss.

    Returns
    -------
    shape (n,), uint8
        `TokenStatus` of each token.

    Examples
    --------
    >>> classify(np.array([-1.5, 0.0, 5e-7, 1.0, -9999.0, -np.inf])).tolist()
    [0, 0, 0, 6, 4, 5]
    """
    status = np.full(logprob.shape, TokenStatus.VALID, np.uint8)
    status[logprob > SLACK_NATS] = TokenStatus.POSITIVE
    status[logprob <= SENTINEL_NATS] = TokenStatus.SENTINEL
    status[~np.isfinite(logprob)] = TokenStatus.NONFINITE
    if missing is not None:
        status[missing] = TokenStatus.MISSING
    if masked is not None:
        status[masked] = TokenStatus.MASKED
    return status


def as_logged(logprob: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the column a `TokenTrace` carries: float32, rounding above zero clipped to 0.

    What is neither VALID nor rounding stays as it was reported.

    Parameters
    ----------
    logprob : shape (n,), float64, nats

    Returns
    -------
    shape (n,), float32, nats

    Examples
    --------
    >>> as_logged(np.array([-1.5, 5e-7, 1.0])).tolist()
    [-1.5, 0.0, 1.0]
    """
    rounding = (logprob > 0.0) & (logprob <= SLACK_NATS)
    with np.errstate(over="ignore"):  # the lowest float64 is a sentinel and becomes -inf
        return np.where(rounding, 0.0, logprob).astype(np.float32)


def missing_zeros(
    logprob: NDArray[np.float64],
    partner: NDArray[np.float64],
    *,
    counted: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Find exact zeros that stand for "nothing was reported".

    NeMo-RL and OpenRLHF start from a tensor of zeros, so a log-probability that never came
    reads 0.0: probability one, a perfect match in every average.  But 0.0 alone can be true:
    a token whose probability rounds to one in float32, or the only token that top-p left.
    An entry is taken for missing when it lies in a run of at least `ZERO_RUN_TOKENS` exact
    zeros over which the other kernel gives the tokens on (geometric) average less than half:
    mean below `ZERO_RUN_NATS`.  The argument: a lone survivor of top-p >= 0.5 has probability
    at least one half in the untouched law, so kernels that agree cannot average below it.

    Measured on recordings of a 135M model.  True zeros (top-p 0.9 or T = 0.6, processed): 400
    runs, 31 of three tokens or more, lowest run mean -0.064 nats: none is taken.  Tokens whose
    log-probabilities are wiped (T = 1): a run of 3 is found with probability 0.89, of 10
    with 0.96, of 50 with 0.99.  What is not found stays VALID and shows as drift; a kernel
    that is broken and certain of nonsense looks the same as a missing report and is counted
    as such.  Neither passes for a match.

    Parameters
    ----------
    logprob : shape (n,), float64, nats
        The column under suspicion.
    partner : shape (n,), float64, nats
        The other kernel's column of the same tokens; entries that are not valid speak for
        nothing.
    counted : shape (n,), bool
        Tokens inside the loss; any other token ends a run.

    Returns
    -------
    shape (n,), bool

    Examples
    --------
    >>> zeros, partner = np.zeros(4), np.array([-2.0, -0.5, -1.0, -3.0])
    >>> missing_zeros(zeros, partner, counted=np.ones(4, bool)).tolist()
    [True, True, True, True]
    >>> missing_zeros(zeros, partner / 100, counted=np.ones(4, bool)).tolist()
    [False, False, False, False]
    """
    zero = (logprob == 0.0) & counted
    edges = np.flatnonzero(np.diff(zero, prepend=False, append=False))
    first, end = edges[::2], edges[1::2]
    speaks = np.where(classify(partner) == TokenStatus.VALID, partner, 0.0)
    total = np.concatenate(([0.0], np.cumsum(speaks)))
    length = end - first
    taken = (length >= ZERO_RUN_TOKENS) & (total[end] - total[first] < ZERO_RUN_NATS * length)
    marks = np.zeros(logprob.size + 1, np.int64)
    marks[first[taken]] += 1
    marks[end[taken]] -= 1
    return np.cumsum(marks[:-1]) > 0
