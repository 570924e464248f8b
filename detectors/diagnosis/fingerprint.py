"""Fingerprints: additive sums per unit from which every diagnostic feature is computed.

Sums add, so a slice's recent past is one vector, and merging shards is an addition.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import Floats
from paritas.records import TokenStatus

__all__ = ["BANDS", "BETS", "EDGES", "FIELDS", "HISTOGRAM", "Fingerprint", "Recent", "fingerprints"]

# log q of the sampled token: above .9, .5-.9, .1-.5, .01-.1, below .01
BANDS = (np.log(0.9), np.log(0.5), np.log(0.1), np.log(0.01))
# Position in the response: the first token, which prefill made, then powers of four.
EDGES = (0, 1, 4, 16, 64, 256, 1024, 4096, 16384)
# Bets that the tokens of a part drift more than their share of the sequence (`parts.evidence`)
BETS = (0.1, 0.4)
# |ell| in powers of two from 2^-24 to 2^5 nats: from the median of float32 noise (about 2^-18) to broken tokens
LOWEST = 24
HISTOGRAM = tuple(2.0**e for e in range(-LOWEST, 6))
HALVES = ("first", "second")
NEAR = 8  # tokens before the last one that it is compared with
TINY = 1e-300  # keeps a quotient that is not used finite
CEILING = 50.0  # nats; squares and fourth powers of |ell| stay finite and comparable


PARTS = (
    *(f"band{i}" for i in range(len(BANDS) + 1)),
    *(f"position{i}" for i in range(len(EDGES))),
    "last",
)


def _names() -> Iterator[str]:
    """Names of the sums; docs/diagnosis.md says what is made of them."""
    yield from ("tokens", "abs", "ell", "ell2", "ell4", "not_above", "k3", "capped")
    yield from ("up15", "down15", "up2", "down2", "equal")
    yield from ("p", "q", "pp", "qq", "pq")
    for lag in ("back", "ahead"):
        yield from (f"{lag}_{name}" for name in ("n", "p", "q", "pp", "qq", "pq"))
    yield from ("root", "next_root", "size", "next_size")
    yield from ("top1_n", "top1_gain", "top1_variance", "units", "unit_abs", "unit_abs2")
    yield from (f"band{i}_{name}" for i in range(len(BANDS) + 1) for name in ("n", "ell", "abs"))
    yield from (f"position{i}_{name}" for i in range(len(EDGES)) for name in ("n", "abs", "abs2"))
    yield from (f"{part}_{name}" for part in ("last", "near", "first", "second") for name in ("n", "abs"))
    yield from ("lean_n", "lean", "lean2")
    yield from (f"{part}_bet{k}" for part in PARTS for k in range(len(BETS)))
    yield from (f"histogram{i}" for i in range(len(HISTOGRAM) + 1))
    yield from (f"status_{s.name.lower()}" for s in TokenStatus)


FIELDS: Mapping[str, int] = MappingProxyType({name: i for i, name in enumerate(_names())})


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprint:
    """Sums over some units; `values` has one entry per name in `FIELDS`."""

    values: Floats

    def __getitem__(self, name: str) -> float:
        return float(self.values[FIELDS[name]])

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.values + other.values)

    @classmethod
    def zero(cls) -> "Fingerprint":
        """The fingerprint of no units."""
        return cls(np.zeros(len(FIELDS)))


@dataclass(slots=True)
class Recent:
    """The last `window` to twice `window` units of one slice, as two sums that rotate.

    Two sums instead of a ring of pairs: bounded memory, and a change is seen undiluted after
    at most one window.
    """

    window: int = 256
    older: Floats = field(default_factory=lambda: np.zeros(len(FIELDS)))
    newer: Floats = field(default_factory=lambda: np.zeros(len(FIELDS)))
    filled: int = 0

    def fold(self, unit: Floats) -> None:
        """Add one unit's sums."""
        if self.filled == self.window:
            self.older, self.newer, self.filled = self.newer, np.zeros(len(FIELDS)), 0
        self.newer = self.newer + unit
        self.filled += 1

    def total(self) -> Fingerprint:
        """Sums over everything still remembered."""
        return Fingerprint(self.older + self.newer)

    def as_dict(self) -> dict[str, object]:
        """JSON-ready state."""
        return {"older": self.older.tolist(), "newer": self.newer.tolist(), "filled": self.filled}

    @classmethod
    def from_dict(cls, state: Mapping[str, object], window: int) -> "Recent":
        """Restore what `as_dict` gave."""
        older, newer = (np.array(state[k], dtype=np.float64) for k in ("older", "newer"))
        return cls(window, older, newer, int(str(state["filled"])))


def fingerprints(batch: PairBatch) -> Floats:
    """Sums of each pair of `batch`, shape (n, len(FIELDS)), float64."""
    out = np.zeros((len(batch), len(FIELDS)))
    filled = np.flatnonzero(np.diff(batch.offsets))
    if filled.size:
        starts = batch.offsets[:-1][filled]
        for name, column in _columns(batch):
            out[filled, FIELDS[name]] = np.add.reduceat(column, starts)
        for names, sums in chain(_binned(batch), _ends(batch)):
            out[:, [FIELDS[name] for name in names]] = sums
        _note_units(out)
    out[:, FIELDS["units"]] = 1.0
    for status in TokenStatus:
        index = FIELDS[f"status_{status.name.lower()}"]
        out[:, index] = [p.counts.get(status, 0) for p in batch.pairs]
    return out


def _columns(batch: PairBatch) -> Iterator[tuple[str, Floats]]:
    """Yield every per-token column, shape (m,), float64."""
    ell = np.clip(batch.log_ratio, -CEILING, CEILING)
    size = np.abs(ell)
    yield from _moments(ell, size)
    q = np.maximum(batch.logprob_q, -CEILING)
    p = np.maximum(batch.logprob_q + batch.log_ratio, -CEILING)
    yield from zip(("p", "q", "pp", "qq", "pq"), (p, q, p * p, q * q, p * q), strict=True)
    yield from _lagged(p, q, batch.offsets)
    yield from _roots(ell, batch.offsets)
    yield from _top1(batch)


def _moments(ell: Floats, size: Floats) -> Iterator[tuple[str, Floats]]:
    yield "tokens", np.ones_like(ell)
    yield "abs", size
    yield "ell", ell
    yield "ell2", size * size
    yield "ell4", (size * size) ** 2
    yield "not_above", (ell <= 0).astype(np.float64)
    yield "equal", (ell == 0).astype(np.float64)
    yield "k3", np.expm1(ell) - ell
    yield "capped", np.exp(np.minimum(ell, np.log(2.0)))
    for name, ratio in (("15", 1.5), ("2", 2.0)):
        yield f"up{name}", (ell > np.log(ratio)).astype(np.float64)
        yield f"down{name}", (ell < -np.log(ratio)).astype(np.float64)


def _lagged(p: Floats, q: Floats, offsets: NDArray[np.int64]) -> Iterator[tuple[str, Floats]]:
    """Cross moments of p with q one token back and one ahead, within a sequence."""
    first, last = np.zeros(len(p), bool), np.zeros(len(p), bool)
    filled = np.diff(offsets) > 0
    first[offsets[:-1][filled]] = True
    last[offsets[1:][filled] - 1] = True
    for name, other, edge in (("back", np.roll(q, 1), first), ("ahead", np.roll(q, -1), last)):
        inside = (~edge).astype(np.float64)
        products = (np.ones_like(p), p, other, p * p, other * other, p * other)
        for moment, values in zip(("n", "p", "q", "pp", "qq", "pq"), products, strict=True):
            yield f"{name}_{moment}", inside * values


def _roots(ell: Floats, offsets: NDArray[np.int64]) -> Iterator[tuple[str, Floats]]:
    """Signed square roots of ell and their products with the token before; roots, so that no token rules."""
    size = np.sqrt(np.abs(ell))
    root = np.copysign(size, ell)
    first = np.zeros(len(ell), bool)
    first[offsets[:-1][np.diff(offsets) > 0]] = True
    yield "root", root
    yield "size", size
    yield "next_root", np.where(first, 0.0, root * np.roll(root, 1))
    yield "next_size", np.where(first, 0.0, size * np.roll(size, 1))


def _top1(batch: PairBatch) -> Iterator[tuple[str, Floats]]:
    known = ~np.isnan(batch.top.top1_q)
    q = np.where(known, batch.top.top1_q, 0.0)
    yield "top1_n", known.astype(np.float64)
    yield "top1_gain", np.where(known, batch.top.is_top1 - q, 0.0)
    yield "top1_variance", np.where(known, q * (1.0 - q), 0.0)


def _binned(batch: PairBatch) -> Iterator[tuple[list[str], Floats]]:
    """Yield the names of the bins of one number and its sums in each bin, shape (n, bins)."""
    ell = np.clip(batch.log_ratio, -CEILING, CEILING)
    size = np.abs(ell)
    rows = np.repeat(np.arange(len(batch)), batch.counts())
    band = sum((batch.logprob_q < edge).astype(np.int64) for edge in BANDS)
    place = np.searchsorted(np.array(EDGES), batch.position, side="right") - 1
    level = _level(size)
    wanted: tuple[tuple[str, int, NDArray[np.int64], Floats | None], ...] = (
        ("band{}_n", len(BANDS) + 1, band, None),
        ("band{}_ell", len(BANDS) + 1, band, ell),
        ("band{}_abs", len(BANDS) + 1, band, size),
        ("position{}_n", len(EDGES), place, None),
        ("position{}_abs", len(EDGES), place, size),
        ("position{}_abs2", len(EDGES), place, size * size),
        ("histogram{}", len(HISTOGRAM) + 1, level, None),
    )
    for name, bins, where, weights in wanted:
        sums = np.bincount(rows * bins + where, weights, len(batch) * bins)
        yield [name.format(i) for i in range(bins)], sums.reshape(len(batch), bins).astype(np.float64)


def _level(size: Floats) -> NDArray[np.int64]:
    """Bin of `HISTOGRAM`, by the exponent: what a search among its edges gives, and much faster."""
    mantissa, exponent = np.frexp(size)
    at = exponent.astype(np.int64) - (mantissa == 0.5) + LOWEST  # an edge belongs below itself
    return np.where(size > 0, at.clip(0, len(HISTOGRAM)), 0)


def _ends(batch: PairBatch) -> Iterator[tuple[list[str], Floats]]:
    """Yield the sums over the last token of each pair, over those just before, and over its two halves."""
    size = np.append(np.minimum(np.abs(batch.log_ratio), CEILING), 0.0)
    starts, stops, half = batch.offsets[:-1], batch.offsets[1:], batch.counts() // 2
    last = np.maximum(stops - 1, starts)
    for name, begin, end in (
        ("last", last, stops),
        ("near", np.maximum(last - NEAR, starts), last),
        ("first", starts, starts + half),
        ("second", stops - half, stops),
    ):
        yield [f"{name}_n", f"{name}_abs"], np.stack([end - begin, _spans(size, begin, end)], axis=1)


def _spans(values: Floats, begin: NDArray[np.int64], end: NDArray[np.int64]) -> Floats:
    """Sum of ``values[begin:end]`` of each pair; `values` has one more than there are tokens."""
    if not begin.size:
        return np.zeros(0)
    sums = np.add.reduceat(values, np.stack([begin, end], axis=1).ravel())[::2]
    return np.where(end > begin, sums, 0.0)


def _note_units(out: Floats) -> None:
    """Add what depends on a unit's own sums: its mean |ell|, and the bets on its parts."""
    mean = np.divide(out[:, FIELDS["abs"]], np.maximum(out[:, FIELDS["tokens"]], 1.0))
    out[:, FIELDS["unit_abs"]], out[:, FIELDS["unit_abs2"]] = mean, mean * out[:, FIELDS["abs"]]
    n, total = (out[:, [FIELDS[f"{part}_{name}"] for part in PARTS]] for name in ("n", "abs"))
    told = (n > 0) & (mean[:, None] > 0)
    excess = np.where(told, total / np.maximum(n * mean[:, None], TINY) - 1.0, 0.0)
    _note_lean(out, mean)
    excess[:, -1] = _last_excess(out)
    for k, bet in enumerate(BETS):
        out[:, [FIELDS[f"{part}_bet{k}"] for part in PARTS]] = np.log1p(bet * excess)


def _last_excess(out: Floats) -> Floats:
    """Last token over the mean of it and those just before, less one, shape (n,)."""
    n, near, last, before = (out[:, FIELDS[f]] for f in ("last_n", "near_n", "last_abs", "near_abs"))
    mean = (last + before) / np.maximum(n + near, 1.0)
    return np.where((near > 0) & (mean > 0), last / np.maximum(mean, TINY) - 1.0, 0.0)


def _note_lean(out: Floats, mean: Floats) -> None:
    """Add how much more the second half of each unit drifts than its first, in units of its mean."""
    halves = [out[:, FIELDS[f"{part}_abs"]] / np.maximum(out[:, FIELDS[f"{part}_n"]], 1.0) for part in HALVES]
    told = (out[:, FIELDS["first_n"]] > 0) & (mean > 0)
    lean = np.where(told, (halves[1] - halves[0]) / np.maximum(mean, TINY), 0.0)
    out[:, [FIELDS[f] for f in ("lean_n", "lean", "lean2")]] = np.stack([told, lean, lean * lean], axis=1)
