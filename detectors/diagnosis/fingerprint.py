"""Fingerprints: additive sums per unit from which every diagnostic feature is computed.

Sums add, so a slice's recent past is one vector, and merging shards is an addition.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

import numpy as np

from paritas.detectors.diagnosis.bins import BANDS, EDGES, HISTOGRAM, bins, ends
from paritas.detectors.diagnosis.token_sums import Tokens, moments, neighbours
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import Floats
from paritas.records import TokenStatus

__all__ = ["BANDS", "BETS", "EDGES", "FIELDS", "HISTOGRAM", "Fingerprint", "Recent", "fingerprints"]

# Bets that the tokens of a part drift more than their share of the sequence (`parts.evidence`)
BETS = (0.1, 0.4)
HALVES = ("first", "second")
TINY = 1e-300  # keeps a quotient that is not used finite

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
# Fields of all bins of a number, by the first of them.
BINS: Mapping[str, slice] = MappingProxyType(
    {
        f"{first}0{of}": slice(FIELDS[f"{first}0{of}"], FIELDS[f"{first}{last}{of}"] + 1, step)
        for first, last, step, more in (
            ("band", len(BANDS), 3, ("_n", "_ell", "_abs")),
            ("position", len(EDGES) - 1, 3, ("_n", "_abs", "_abs2")),
            ("histogram", len(HISTOGRAM), 1, ("",)),
        )
        for of in more
    }
)
PART_N, PART_ABS, *PART_BETS = (
    [FIELDS[f"{part}_{name}"] for part in PARTS]
    for name in ("n", "abs", *(f"bet{k}" for k in range(len(BETS))))
)
STATUSES = [FIELDS[f"status_{s.name.lower()}"] for s in TokenStatus]


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
    out = np.zeros((len(FIELDS), len(batch)))  # one field after the other
    if len(batch.log_ratio):
        tokens = Tokens.of(batch)
        for name, sums in chain(moments(tokens), neighbours(tokens), ends(tokens)):
            out[FIELDS[name]] = sums
        for first, table in bins(tokens):
            out[BINS[first]] = table
        _note_units(out.T)
    out[FIELDS["units"]] = 1.0
    out[STATUSES] = batch.statuses().T
    return np.ascontiguousarray(out.T)


def _note_units(out: Floats) -> None:
    """Add what depends on a unit's own sums: its mean |ell|, and the bets on its parts."""
    mean = np.divide(out[:, FIELDS["abs"]], np.maximum(out[:, FIELDS["tokens"]], 1.0))
    out[:, FIELDS["unit_abs"]], out[:, FIELDS["unit_abs2"]] = mean, mean * out[:, FIELDS["abs"]]
    n, total = out[:, PART_N], out[:, PART_ABS]
    told = (n > 0) & (mean[:, None] > 0)
    excess = np.where(told, total / np.maximum(n * mean[:, None], TINY) - 1.0, 0.0)
    _note_lean(out, mean)
    excess[:, -1] = _last_excess(out)
    for bet, fields in zip(BETS, PART_BETS, strict=True):
        out[:, fields] = np.log1p(bet * excess)


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
    for field_, sums in (("lean_n", told), ("lean", lean), ("lean2", lean * lean)):
        out[:, FIELDS[field_]] = sums
