"""Parts of a response: early and late tokens, the last one, and evidence that a part drifts more."""

from dataclasses import dataclass

import numpy as np

from paritas.detectors.diagnosis.bets import CLEAR
from paritas.detectors.diagnosis.fingerprint import BANDS, BETS, EDGES, PARTS, Fingerprint
from paritas.detectors.diagnosis.moments import over

__all__ = ["MIN_BIN", "WorstPart", "evidence", "part_features", "part_mean", "worst_part"]

NAN = float("nan")
MIN_LAST = 12  # last tokens
MIN_BIN = 30  # tokens a position bin needs before its mean says anything
APART = {"band": 2.0}  # times the others: unlikely tokens drift more by nature
APART_PLACE = 1.5
EARLY = [i for i, edge in enumerate(EDGES) if edge < 4]
REST = [i for i, edge in enumerate(EDGES) if edge >= 4]
LATE = [i for i, edge in enumerate(EDGES) if edge >= 16]


def part_features(sums: Fingerprint) -> dict[str, float]:
    """How the parts of a response differ, with their evidence."""
    growth, growth_z = _position(sums)
    fall, fall_z = _contrast(sums, EARLY, REST)
    return {
        "position_growth": growth,
        "position_z": growth_z,
        "position_fall": fall,
        "position_fall_z": fall_z,
        "last_growth": _last(sums),
        "lean_z": _lean_z(sums),
        "late_log10_e": _best(sums, [f"position{i}" for i in LATE]),
        "early_log10_e": _best(sums, [f"position{i}" for i in EARLY]),
        "last_log10_e": _best(sums, ["last"]),
    }


def part_mean(sums: Fingerprint, part: str) -> float:
    """Mean |ell| of the tokens of one part (`fingerprint.PARTS`), nats; NaN without any."""
    return over(sums[f"{part}_abs"], sums[f"{part}_n"])


def evidence(sums: Fingerprint, part: str) -> float:
    """Evidence that the tokens of a part drift more than their share of their sequences, log10 of an e-value.

    The null is that a sequence's drifts stand in any order: given their sizes, the mean of a part is
    then that of the sequence on average, and ``1 + lambda (mean of the part / mean - 1)`` a fair bet.
    """
    logs = np.array([sums[f"{part}_bet{k}"] for k in range(len(BETS))])
    return float((np.logaddexp.reduce(logs) - np.log(len(BETS))) / np.log(10.0))


def _best(sums: Fingerprint, parts: list[str]) -> float:
    """Strongest evidence of some parts, corrected for how many were looked at; NaN without tokens."""
    seen = [part for part in parts if sums[f"{part}_n"]]
    if not seen:
        return NAN
    return max(evidence(sums, part) for part in seen) - float(np.log10(len(seen)))


def _position(sums: Fingerprint) -> tuple[float, float]:
    """Late over early mean |ell|, and the difference in standard errors."""
    bins = [i for i in range(len(EDGES)) if sums[f"position{i}_n"] >= MIN_BIN]
    if len(bins) < 2:
        return NAN, NAN
    early, late = bins[: len(bins) // 2], bins[len(bins) // 2 :]
    (m0, v0), (m1, v1) = (_bin_mean(sums, part) for part in (early, late))
    return over(m1, m0), over(m1 - m0, np.sqrt(v0 + v1))


def _bin_mean(sums: Fingerprint, bins: list[int]) -> tuple[float, float]:
    """Mean of |ell| over some position bins and the variance of that mean."""
    n, a, a2 = (sum(sums[f"position{i}_{k}"] for i in bins) for k in ("n", "abs", "abs2"))
    mean = a / n
    return mean, max(a2 / n - mean**2, 0.0) / n


def _contrast(sums: Fingerprint, part: list[int], rest: list[int]) -> tuple[float, float]:
    """Mean |ell| of some position bins over that of others, and the difference in standard errors."""
    if any(sum(sums[f"position{i}_n"] for i in bins) < MIN_BIN for bins in (part, rest)):
        return NAN, NAN
    (m0, v0), (m1, v1) = (_bin_mean(sums, bins) for bins in (rest, part))
    return over(m1, m0), over(m1 - m0, np.sqrt(v0 + v1))


def _last(sums: Fingerprint) -> float:
    """Last tokens over those just before; NaN from few sequences."""
    if sums["last_n"] < MIN_LAST or sums["near_n"] < MIN_LAST:
        return NAN
    return over(part_mean(sums, "last"), part_mean(sums, "near"))


def _lean_z(sums: Fingerprint) -> float:
    """Mean excess of second halves over first ones, in standard errors over sequences."""
    n = sums["lean_n"]
    if n < MIN_LAST:
        return NAN
    mean = sums["lean"] / n
    return over(mean, np.sqrt(max(sums["lean2"] / n - mean**2, 0.0) / n))


@dataclass(frozen=True, slots=True)
class WorstPart:
    """The part of the responses that drifts most.

    Attributes
    ----------
    name : str
        Positions, a band of q, or the last token.
    times : float
        Its mean |ell| over that of the other tokens.
    log10_e : float
        Evidence, corrected for all parts looked at.
    """

    name: str
    times: float
    log10_e: float


def worst_part(sums: Fingerprint) -> WorstPart | None:
    """Return the part that drifts most, by clear evidence and by more than nature makes it; None if none does."""
    seen = [part for part in PARTS if sums[f"{part}_n"] >= MIN_LAST]
    found = [
        WorstPart(_called(part), _times(sums, part), evidence(sums, part) - float(np.log10(len(seen))))
        for part in seen
        if _times(sums, part) >= APART.get(part[:4], APART_PLACE)
    ]
    clear = [part for part in found if part.log10_e >= CLEAR]
    return max(clear, key=lambda part: part.times, default=None)


def _times(sums: Fingerprint, part: str) -> float:
    """Mean |ell| of a part over that of the other tokens."""
    rest = over(sums["abs"] - sums[f"{part}_abs"], sums["tokens"] - sums[f"{part}_n"])
    return over(part_mean(sums, part), rest)


def _called(part: str) -> str:
    """Name of a part for people.

    Examples
    --------
    >>> _called("position3"), _called("band0"), _called("band2"), _called("last")
    ('tokens 16 to 63', 'q above 0.9', 'q 0.1 to 0.5', 'last token')
    """
    if part in ("last", "position0"):
        return "last token" if part == "last" else "first token"
    number = int(part[-1])
    if part.startswith("position"):
        ends = [f"{edge - 1}" for edge in EDGES[1:]]
        return (
            f"tokens {EDGES[number]} to {ends[number]}" if number < len(ends) else f"tokens from {EDGES[-1]}"
        )
    edges = [f"{np.exp(band):.2g}" for band in BANDS]
    if number == 0:
        return f"q above {edges[0]}"
    return f"q {edges[number]} to {edges[number - 1]}" if number < len(edges) else f"q below {edges[-1]}"
