"""Bins: sums by how likely a token was, by its place in the response, and by the size of its drift."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.diagnosis.token_sums import Tokens, spans
from paritas.detectors.pairs import Floats
from paritas.detectors.token_columns import owner

__all__ = ["BANDS", "EDGES", "HISTOGRAM", "NEAR", "bins", "ends"]

# log q of the sampled token: above .9, .5-.9, .1-.5, .01-.1, below .01
BANDS = (np.log(0.9), np.log(0.5), np.log(0.1), np.log(0.01))
# Position in the response: the first token, which prefill made, then powers of four.
EDGES = (0, 1, 4, 16, 64, 256, 1024, 4096, 16384)
# |ell| in powers of two from 2^-24 to 2^5 nats: from the median of float32 noise (about 2^-18) to broken tokens
LOWEST = 24
HISTOGRAM = tuple(2.0**e for e in range(-LOWEST, 6))
NEAR = 8  # tokens before the last one that it is compared with
MANTISSA_BITS = 52  # of a float64
BELOW_LOWEST = 1023 - LOWEST - 1  # exponent field of what lies in bin 0, the one below the lowest edge

Tables = Iterator[tuple[str, Floats]]


def bins(tokens: Tokens) -> Tables:
    """Yield the first name of the bins of one number and its sums in each bin, shape (bins, n)."""
    yield from _bands(tokens)
    yield from _positions(tokens)
    key = _key(tokens, _level(tokens.size))
    yield "histogram0", _binned(tokens, key, None, len(HISTOGRAM) + 1)


def _key(tokens: Tokens, bin_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bin and pair of each token as one number; `bin_of` is overwritten."""
    bin_of *= len(tokens.batch)
    bin_of += owner(tokens.batch)
    return bin_of


def _binned(tokens: Tokens, key: NDArray[np.int64], weights: Floats | None, number: int) -> Floats:
    pairs = len(tokens.batch)
    return np.asarray(np.bincount(key, weights, pairs * number).reshape(number, pairs), dtype=np.float64)


def _bands(tokens: Tokens) -> Tables:
    """How likely the token was."""
    number, q = len(BANDS) + 1, tokens.batch.logprob_q
    below = np.zeros(len(q), np.int8)
    for edge in BANDS:
        below += (q < edge).view(np.int8)
    key = _key(tokens, below.astype(np.int64))
    for name, weights in (("n", None), ("ell", tokens.ell), ("abs", tokens.size)):
        yield f"band0_{name}", _binned(tokens, key, weights, number)


def _positions(tokens: Tokens) -> Tables:
    """Place in the response, by stretches of tokens in one bin: positions mostly rise."""
    batch, place = tokens.batch, np.zeros(len(tokens.ell), np.int8)
    for edge in EDGES[1 : int(np.searchsorted(EDGES, batch.position.max(), side="right"))]:
        place += (batch.position >= edge).view(np.int8)
    is_start = np.diff(place, prepend=np.int8(-1)) != 0
    is_start[batch.offsets[:-1][batch.counts() > 0]] = True
    starts = np.flatnonzero(is_start)
    key = place[starts].astype(np.int64) * len(batch) + owner(batch)[starts]
    for name, sums in (
        ("n", np.diff(starts, append=len(place)).astype(np.float64)),
        ("abs", np.add.reduceat(tokens.size, starts)),
        ("abs2", np.add.reduceat(tokens.square, starts)),
    ):
        yield f"position0_{name}", _binned(tokens, key, sums, len(EDGES))


def _level(size: Floats) -> NDArray[np.int64]:
    """Bin of `HISTOGRAM`, by the exponent: what a search among its edges gives, and much faster.

    The bits of a positive float64 less one are those of the number just below it, so that an edge
    belongs below itself.
    """
    level = size.view(np.int64) - 1
    level >>= MANTISSA_BITS
    level -= BELOW_LOWEST
    return np.clip(level, 0, len(HISTOGRAM), out=level)


def ends(tokens: Tokens) -> Iterator[tuple[str, Floats | NDArray[np.int64]]]:
    """Yield the sums over the last token of each pair, over those just before, and over its two halves."""
    start, stop = tokens.batch.offsets[:-1], tokens.batch.offsets[1:]
    last, half = np.maximum(stop - 1, start), tokens.batch.counts() // 2
    for name, first, end in (
        ("last", last, stop),
        ("near", np.maximum(last - NEAR, start), last),
        ("first", start, start + half),
        ("second", stop - half, stop),
    ):
        yield f"{name}_n", end - first
        yield f"{name}_abs", spans(tokens.size, first, end)
