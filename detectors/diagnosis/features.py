"""The features a person would look at, computed from a fingerprint's sums."""

from dataclasses import dataclass

import numpy as np

from paritas.detectors.diagnosis.fingerprint import BANDS, EDGES, HISTOGRAM, Fingerprint
from paritas.records import TokenStatus

__all__ = ["Features"]

MIN_BIN = 100  # tokens a position bin needs before its mean says anything


@dataclass(frozen=True, slots=True)
class Features:
    """Diagnostic features of one slice (docs/diagnosis.md); NaN where the slice cannot tell.

    Attributes
    ----------
    tokens, units : float
        Valid tokens and sequences behind the numbers.
    mean_abs, mean, sd : float, nats
        Of ell = log p - log q.
    share_not_above : float
        Share of tokens with ell <= 0; about one half for noise.
    spread : float
        Mean of |ell| over its median: 1 for a constant, 1.2 for Gaussian, 1.4-1.6 for rounding
        noise of real kernels, 1.7 and more where a few tokens carry the drift.
    kurtosis : float
        Fourth moment over squared variance of ell; 3 for Gaussian, 5-19 for rounding noise.
    slope : float
        Least-squares slope of log p on log q; 1 unless one side is scaled.
    correlation, back, ahead : float
        Of log p with log q at the same token, one back, one ahead.
    up, down : float
        Share of tokens with ratio above 1.5, below 1/1.5.
    mean_ratio : float
        Mean of min(w, 2); `mean_ratio_z` its distance from 1 in standard errors.
    top1_z : float
        Top-1 frequency z (A21).
    position_growth, position_z : float
        Mean |ell| in the late half of the filled position bins over the early half, and its z.
    band_high, band_low : float, nats
        Mean ell where q is .1 to .9, and where q is below .1.
    broken, missing : float
        Share of generated tokens that are nonfinite, positive or sentinel; that are missing.
    """

    tokens: float
    units: float
    mean_abs: float
    mean: float
    sd: float
    share_not_above: float
    spread: float
    kurtosis: float
    slope: float
    correlation: float
    back: float
    ahead: float
    up: float
    down: float
    mean_ratio: float
    mean_ratio_z: float
    top1_z: float
    position_growth: float
    position_z: float
    band_high: float
    band_low: float
    broken: float
    missing: float

    @classmethod
    def of(cls, sums: Fingerprint) -> "Features":
        """Compute every feature; needs no more than the sums."""
        n = sums["tokens"]
        mean, sd, kurtosis = _shape(sums)
        growth, growth_z = _position(sums)
        return cls(
            tokens=n,
            units=sums["units"],
            mean_abs=_over(sums["abs"], n),
            mean=mean,
            sd=sd,
            share_not_above=_over(sums["not_above"], n),
            spread=_over(_over(sums["abs"], n), _median(sums)),
            kurtosis=kurtosis,
            slope=_slope(sums),
            correlation=_correlation(sums, ""),
            back=_correlation(sums, "back_"),
            ahead=_correlation(sums, "ahead_"),
            up=_over(sums["up15"], n),
            down=_over(sums["down15"], n),
            mean_ratio=_over(sums["capped"], n),
            mean_ratio_z=_ratio_z(sums, sd),
            top1_z=_over(sums["top1_gain"], np.sqrt(sums["top1_variance"])),
            position_growth=growth,
            position_z=growth_z,
            band_high=_band(sums, 1, 2),
            band_low=_band(sums, 3, 4),
            broken=_status(sums, TokenStatus.NONFINITE, TokenStatus.POSITIVE, TokenStatus.SENTINEL),
            missing=_status(sums, TokenStatus.MISSING),
        )


def _over(a: float, b: float) -> float:
    """a / b, NaN where b is zero."""
    return float(a / b) if b else float("nan")


def _shape(sums: Fingerprint) -> tuple[float, float, float]:
    n = sums["tokens"]
    mean = _over(sums["ell"], n)
    variance = max(_over(sums["ell2"], n) - mean**2, 0.0) if n else float("nan")
    return mean, float(np.sqrt(variance)), _over(_over(sums["ell4"], n), variance**2)


def _median(sums: Fingerprint) -> float:
    """Median of |ell| by linear interpolation inside its power-of-two bin, nats."""
    counts = np.array([sums[f"histogram{i}"] for i in range(len(HISTOGRAM) + 1)])
    if not counts.sum():
        return float("nan")
    cumulative = counts.cumsum()
    half = cumulative[-1] / 2
    i = int(np.searchsorted(cumulative, half))
    low = 0.0 if i == 0 else HISTOGRAM[i - 1]
    high = HISTOGRAM[i] if i < len(HISTOGRAM) else 2 * HISTOGRAM[-1]
    return float(low + (high - low) * (half - (cumulative[i] - counts[i])) / counts[i])


def _slope(sums: Fingerprint) -> float:
    n = sums["tokens"]
    covariance = sums["pq"] - _over(sums["p"] * sums["q"], n) if n else float("nan")
    return _over(covariance, sums["qq"] - _over(sums["q"] ** 2, n)) if n else float("nan")


def _correlation(sums: Fingerprint, lag: str) -> float:
    n = sums[f"{lag}n"] if lag else sums["tokens"]
    if n < 3:
        return float("nan")
    p, q, pp, qq, pq = (sums[f"{lag}{name}"] for name in ("p", "q", "pp", "qq", "pq"))
    scale = max(pp - p * p / n, 0.0) * max(qq - q * q / n, 0.0)
    return _over(pq - p * q / n, np.sqrt(scale))


def _ratio_z(sums: Fingerprint, sd: float) -> float:
    """(mean min(w, 2) - 1) in standard errors, with sd(ell) as the spread of w near 1."""
    n = sums["tokens"]
    return _over(_over(sums["capped"], n) - 1.0, sd / np.sqrt(n)) if n else float("nan")


def _position(sums: Fingerprint) -> tuple[float, float]:
    """Late over early mean |ell|, and the difference in standard errors."""
    bins = [i for i in range(len(EDGES)) if sums[f"position{i}_n"] >= MIN_BIN]
    if len(bins) < 2:
        return float("nan"), float("nan")
    early, late = bins[: len(bins) // 2], bins[len(bins) // 2 :]
    (m0, v0), (m1, v1) = (_bin_mean(sums, part) for part in (early, late))
    return _over(m1, m0), _over(m1 - m0, np.sqrt(v0 + v1))


def _bin_mean(sums: Fingerprint, bins: list[int]) -> tuple[float, float]:
    """Mean of |ell| over some position bins and the variance of that mean."""
    n, a, a2 = (sum(sums[f"position{i}_{k}"] for i in bins) for k in ("n", "abs", "abs2"))
    mean = a / n
    return mean, max(a2 / n - mean**2, 0.0) / n


def _band(sums: Fingerprint, *bands: int) -> float:
    assert max(bands) <= len(BANDS)
    total = sum(sums[f"band{i}_ell"] for i in bands)
    return _over(total, sum(sums[f"band{i}_n"] for i in bands))


def _status(sums: Fingerprint, *statuses: TokenStatus) -> float:
    skipped = (TokenStatus.MASKED, TokenStatus.PROMPT)
    total = sum(sums[f"status_{s.name.lower()}"] for s in TokenStatus if s not in skipped)
    return _over(sum(sums[f"status_{s.name.lower()}"] for s in statuses), total)
