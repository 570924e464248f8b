"""Moments: sizes, directions, shapes and correlations, computed from a fingerprint's sums."""

import numpy as np

from paritas.detectors.diagnosis.fingerprint import BANDS, HISTOGRAM, Fingerprint
from paritas.records import TokenStatus

__all__ = ["law_features", "over", "shape_features", "size_features", "status_features"]

NAN = float("nan")
BOTH = ((0, 1, 2), (3, 4))  # bands of likely and of unlikely tokens
MIN_PAIRS = 30  # tokens with one before them, for a correlation with it


def size_features(sums: Fingerprint) -> dict[str, float]:
    """How large the drift is, in which direction, and how it is spread over tokens and sequences."""
    n, median = sums["tokens"], _quantile(sums, 0.5)
    mean, sd, kurtosis = _shape(sums)
    return {
        "tokens": n,
        "units": sums["units"],
        "mean_abs": over(sums["abs"], n),
        "mean": mean,
        "sd": sd,
        "share_not_above": over(sums["not_above"], n),
        "spread": over(over(sums["abs"], n), median),
        "kurtosis": kurtosis,
        "up": over(sums["up15"], n),
        "down": over(sums["down15"], n),
        "tail": over(_quantile(sums, 0.99), median),
        "shoulder": over(_quantile(sums, 0.9), median),
    }


def law_features(sums: Fingerprint) -> dict[str, float]:
    """What the two laws have to do with each other and with what was drawn."""
    sd = _shape(sums)[1]
    return {
        "slope": _slope(sums),
        "correlation": _correlation(sums, ""),
        "back": _correlation(sums, "back_"),
        "ahead": _correlation(sums, "ahead_"),
        "mean_ratio": over(sums["capped"], sums["tokens"]),
        "mean_ratio_z": _ratio_z(sums, sd),
        "top1_z": over(sums["top1_gain"], np.sqrt(sums["top1_variance"])),
        "band_high": _band(sums, 1, 2),
        "band_low": _band(sums, 3, 4),
        "opposed": _opposed(sums),
    }


def shape_features(sums: Fingerprint) -> dict[str, float]:
    """Whether drift comes in stretches and in some sequences."""
    return {
        "coherence": _neighbours(sums, "root"),
        "clustering": _neighbours(sums, "size"),
        "dispersion": _dispersion(sums),
    }


def status_features(sums: Fingerprint) -> dict[str, float]:
    """Shares of generated tokens without a usable number."""
    bad = (TokenStatus.NONFINITE, TokenStatus.POSITIVE, TokenStatus.SENTINEL)
    return {"broken": _status(sums, *bad), "missing": _status(sums, TokenStatus.MISSING)}


def over(a: float, b: float) -> float:
    """a / b, NaN where b is zero."""
    return float(a / b) if b else NAN


def _shape(sums: Fingerprint) -> tuple[float, float, float]:
    n = sums["tokens"]
    mean = over(sums["ell"], n)
    variance = max(over(sums["ell2"], n) - mean**2, 0.0) if n else NAN
    return mean, float(np.sqrt(variance)), over(over(sums["ell4"], n), variance**2)


def _quantile(sums: Fingerprint, share: float) -> float:
    """Quantile of |ell|, nats, by interpolation of its logarithm inside its power-of-two bin."""
    counts = np.array([sums[f"histogram{i}"] for i in range(len(HISTOGRAM) + 1)])
    if not counts.sum():
        return NAN
    cumulative = counts.cumsum()
    rank = share * cumulative[-1]
    i = int(np.searchsorted(cumulative, rank))
    high = HISTOGRAM[i] if i < len(HISTOGRAM) else 2 * HISTOGRAM[-1]
    part = (rank - (cumulative[i] - counts[i])) / counts[i]
    return float(high * part) if i == 0 else float(high * 2.0 ** (part - 1.0))


def _slope(sums: Fingerprint) -> float:
    n = sums["tokens"]
    covariance = sums["pq"] - over(sums["p"] * sums["q"], n) if n else NAN
    return over(covariance, sums["qq"] - over(sums["q"] ** 2, n)) if n else NAN


def _correlation(sums: Fingerprint, lag: str) -> float:
    n = sums[f"{lag}n"] if lag else sums["tokens"]
    if n < 3:
        return NAN
    p, q, pp, qq, pq = (sums[f"{lag}{name}"] for name in ("p", "q", "pp", "qq", "pq"))
    scale = max(pp - p * p / n, 0.0) * max(qq - q * q / n, 0.0)
    return over(pq - p * q / n, np.sqrt(scale))


def _ratio_z(sums: Fingerprint, sd: float) -> float:
    """(mean min(w, 2) - 1) in standard errors, with sd(ell) as the spread of w near 1."""
    n = sums["tokens"]
    return over(over(sums["capped"], n) - 1.0, sd / np.sqrt(n)) if n else NAN


def _band(sums: Fingerprint, *bands: int) -> float:
    assert max(bands) <= len(BANDS)
    total = sum(sums[f"band{i}_ell"] for i in bands)
    return over(total, sum(sums[f"band{i}_n"] for i in bands))


def _opposed(sums: Fingerprint) -> float:
    """How much of their drift likely and unlikely tokens spend on moving apart."""
    shares = [over(sum(sums[f"band{i}_ell"] for i in b), sum(sums[f"band{i}_abs"] for i in b)) for b in BOTH]
    if np.isnan(shares).any():
        return NAN
    return min(abs(shares[0]), abs(shares[1])) if shares[0] * shares[1] < 0.0 else 0.0


def _neighbours(sums: Fingerprint, name: str) -> float:
    """Correlation of a root column with itself one token before."""
    n, pairs = sums["tokens"], sums["back_n"]
    if pairs < MIN_PAIRS:
        return NAN
    mean = sums[name] / n
    return over(sums[f"next_{name}"] / pairs - mean**2, sums["abs"] / n - mean**2)


def _dispersion(sums: Fingerprint) -> float:
    """Spread of the sequences' means beyond that of their tokens, over the mean; long sequences count more."""
    units, n = sums["units"], sums["tokens"]
    if units < 3 or not n:
        return NAN
    mean = sums["abs"] / n
    within = max(sums["ell2"] / n - mean**2, 0.0) * units / n
    return over(np.sqrt(max(sums["unit_abs2"] / n - mean**2 - within, 0.0)), mean)


def _status(sums: Fingerprint, *statuses: TokenStatus) -> float:
    skipped = (TokenStatus.MASKED, TokenStatus.PROMPT)
    total = sum(sums[f"status_{s.name.lower()}"] for s in TokenStatus if s not in skipped)
    return over(sum(sums[f"status_{s.name.lower()}"] for s in statuses), total)
