"""The features a person would look at, computed from a fingerprint's sums."""

from dataclasses import dataclass

from paritas.detectors.diagnosis.fingerprint import Fingerprint
from paritas.detectors.diagnosis.moments import law_features, shape_features, size_features, status_features
from paritas.detectors.diagnosis.parts import part_features

__all__ = ["Features"]


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
    position_fall, position_fall_z : float
        Mean |ell| of the first four tokens over the rest, and its z.
    late_log10_e, early_log10_e, last_log10_e : float
        Evidence that some bin from position 16 on, that the first or the next three tokens, that the last
        token drift more than their share of each sequence (`evidence`), corrected for the bins looked at.
    last_growth : float
        Mean |ell| of the last token of each sequence over that of the eight before it.
    lean_z : float
        How much more second halves of sequences drift than first ones, in standard errors over sequences:
        unlike `position_z` it is not moved by stretches of drift.
    band_high, band_low : float, nats
        Mean ell where q is .1 to .9, and where q is below .1.
    opposed : float
        The smaller of the two in size over mean |ell| of its band, where they have opposite signs; else 0.
    tail : float
        99 % quantile of |ell| over its median; 7 for rounding noise.
    shoulder : float
        90 % quantile over the median; 3.3 for rounding noise.
    coherence : float
        Correlation of the signed root of ell with the token before: 0 for rounding, and for tokens
        that were drawn from the law they are compared with.
    clustering : float
        The same of the size alone: drift that comes in stretches.
    dispersion : float
        Standard deviation of the sequences' mean |ell| over its mean, less what chance makes of it.
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
    position_fall: float
    position_fall_z: float
    last_growth: float
    lean_z: float
    late_log10_e: float
    early_log10_e: float
    last_log10_e: float
    band_high: float
    band_low: float
    opposed: float
    tail: float
    shoulder: float
    coherence: float
    clustering: float
    dispersion: float
    broken: float
    missing: float

    @classmethod
    def of(cls, sums: Fingerprint) -> "Features":
        """Compute every feature; needs no more than the sums."""
        groups = (size_features, law_features, part_features, shape_features, status_features)
        return cls(**{name: value for group in groups for name, value in group(sums).items()})
