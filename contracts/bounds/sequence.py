"""From tokens to whole responses (docs/mathematics.md B1 to B6; B7 is `ratio.shortfall` of the summed log-ratio).

A response has at most H tokens (the horizon); its end is absorbing.  Functions named
``..._steps`` take one value per step in the last axis; the others take one value that
bounds every step.  Suprema run over every reachable prefix; means are over tokens of
responses drawn from the inference kernel.
"""

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.divergence import tv_from_kl
from paritas.contracts.bounds.numerics import SMALLEST, Array, checked, log_cosh, union_of_independent

__all__ = [
    "log_ratio_radius",
    "log_ratio_tail",
    "sequence_bhattacharyya_from_oscillation",
    "sequence_chi2_from_oscillation",
    "sequence_chi2_from_oscillation_steps",
    "sequence_ess_share_from_oscillation",
    "sequence_tv_from_kl",
    "sequence_tv_from_mean",
    "sequence_tv_from_oscillation",
    "sequence_tv_from_oscillation_steps",
    "sequence_tv_from_sup",
    "sequence_tv_from_sup_steps",
]


def sequence_tv_from_mean(token_tv_mean: ArrayLike, mean_tokens: ArrayLike) -> Array:
    """Bound the sequence TV by a token-weighted mean: min(1, E|y| mean tv) (B1).

    Equality at one token.  The mean must run over prefixes of one kernel throughout.

    Parameters
    ----------
    token_tv_mean : probability, any shape
    mean_tokens : tokens per response, broadcast against it

    Returns
    -------
    probability

    Examples
    --------
    >>> float(sequence_tv_from_mean(1e-4, 500))
    0.05
    """
    mean = checked(token_tv_mean, "token_tv_mean", high=1.0)
    return np.minimum(mean * checked(mean_tokens, "mean_tokens"), 1.0)


def sequence_tv_from_sup(token_tv_sup: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the sequence TV by the largest token TV: 1 - (1-a)^H <= a H (B2).

    Sharp when supports differ: (1-a, a, 0) against (1-a, 0, a) at every step.

    Parameters
    ----------
    token_tv_sup : probability, any shape
    horizon : tokens, broadcast against it

    Examples
    --------
    >>> round(float(sequence_tv_from_sup(1e-3, 100)), 6)
    0.095208
    """
    alpha = checked(token_tv_sup, "token_tv_sup", high=1.0)
    return union_of_independent(alpha, checked(horizon, "horizon"))


def sequence_tv_from_sup_steps(token_tv_sup: ArrayLike) -> Array:
    """Bound the sequence TV by step-wise suprema in the last axis: 1 - prod(1-a_t) (B2)."""
    alpha = checked(token_tv_sup, "token_tv_sup", high=1.0)
    with np.errstate(divide="ignore"):
        unchanged: Array = np.log1p(-alpha).sum(axis=-1)
    return -np.expm1(unchanged) + 0.0


def sequence_tv_from_oscillation(oscillation: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the sequence TV by the square-root law: sqrt(1 - sech(D/4)^(2H)) ~ D sqrt(H)/4 (B3).

    Equals A2 at one token.  Never above B2 with a = tanh(D/4), nor above Pinsker or
    Bretagnolle-Huber with KL = H D^2/8.  For many binary tokens the exact value is
    sqrt(2/pi) = 0.798 of it.

    Parameters
    ----------
    oscillation : dimensionless, any shape
        Bounds D at every reachable prefix.
    horizon : tokens, broadcast against it

    Examples
    --------
    >>> round(float(sequence_tv_from_oscillation(4e-3, 10_000)), 5)
    0.09975
    """
    d, steps = checked(oscillation, "oscillation"), checked(horizon, "horizon")
    return _tv_from_log_cosh(_scaled(steps, log_cosh(d / 4.0)))


def sequence_tv_from_oscillation_steps(oscillation: ArrayLike) -> Array:
    """Bound the sequence TV by step-wise D in the last axis: sqrt(1 - prod sech(D_t/4)^2) (B3)."""
    return _tv_from_log_cosh(log_cosh(checked(oscillation, "oscillation") / 4.0).sum(axis=-1))


def _tv_from_log_cosh(total: Array) -> Array:
    return np.sqrt(-np.expm1(-2.0 * total)) + 0.0


def _scaled(steps: Array, value: Array) -> Array:
    """Product with 0 * infinity = 0: no step, no drift."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where((steps == 0.0) | (value == 0.0), 0.0, steps * value)[()]


def sequence_bhattacharyya_from_oscillation(oscillation: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the Bhattacharyya coefficient of the sequence laws from below: sech(D/4)^H (B3, B5).

    Sharp: independent steps at the pair of A2.  Arguments as in `sequence_tv_from_oscillation`.
    """
    d, steps = checked(oscillation, "oscillation"), checked(horizon, "horizon")
    return np.exp(-_scaled(steps, log_cosh(d / 4.0)))


def sequence_tv_from_kl(kl: ArrayLike) -> Array:
    """Bound the sequence TV by E_Q of the sum of token KLs, the square-root law for averages (B4).

    The KL chain rule is an equality; the bound is that of A10, sharp at small KL.  For many
    small independent steps the exact value is about 0.8 of it.  Nats in, probability out.

    Examples
    --------
    >>> round(float(sequence_tv_from_kl(1024 * 1.95e-5)), 3)
    0.1
    """
    return tv_from_kl(kl)


def sequence_chi2_from_oscillation(oscillation: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound chi-square of the sequence laws, either way: cosh(D/2)^(2H) - 1 (B5).

    Sharp: independent steps with q(A) = sigmoid(-D), p(A) = 1/2.  Arguments as in
    `sequence_tv_from_oscillation`; infinity on overflow.

    Examples
    --------
    >>> round(float(sequence_chi2_from_oscillation(0.01, 1000)), 5)
    0.02532
    """
    d, steps = checked(oscillation, "oscillation"), checked(horizon, "horizon")
    with np.errstate(over="ignore"):
        return np.expm1(2.0 * _scaled(steps, log_cosh(d / 2.0)))


def sequence_chi2_from_oscillation_steps(oscillation: ArrayLike) -> Array:
    """Bound chi-square of the sequence laws by step-wise D in the last axis (B5)."""
    total: Array = log_cosh(checked(oscillation, "oscillation") / 2.0).sum(axis=-1)
    with np.errstate(over="ignore"):
        return np.expm1(2.0 * total)


def sequence_ess_share_from_oscillation(oscillation: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the effective sample share of sequence weights from below: sech(D/2)^(2H) (B5).

    Sharp where the chi-square bound is.  A share in [0, 1].
    """
    d, steps = checked(oscillation, "oscillation"), checked(horizon, "horizon")
    return np.exp(-2.0 * _scaled(steps, log_cosh(d / 2.0)))


def log_ratio_tail(deviation: ArrayLike, oscillation: ArrayLike, horizon: ArrayLike) -> Array:
    """Bound the chance that log W + sum of KL_t reaches `deviation`: exp(-2 r^2/(H D^2)) (B6).

    One side; the other side has the same bound.  Not sharp: the closest that one step comes
    at one standard deviation is 0.82 of it.

    Parameters
    ----------
    deviation : nats, any shape
        r, at least 0.
    oscillation : dimensionless
    horizon : tokens

    Returns
    -------
    probability
    """
    r, spread = checked(deviation, "deviation"), _spread(oscillation, horizon)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(r == 0.0, 1.0, np.exp(-2.0 * np.square(r / spread)))[()]


def log_ratio_radius(oscillation: ArrayLike, horizon: ArrayLike, *, alpha: float) -> Array:
    """Return the deviation of log W that B6 allows with chance `alpha`: D sqrt(H log(1/alpha)/2).

    Nats.  The inverse of `log_ratio_tail`.
    """
    level = checked(alpha, "alpha", low=SMALLEST, high=1.0)
    with np.errstate(over="ignore"):
        return _spread(oscillation, horizon) * np.sqrt(-np.log(level) / 2.0)


def _spread(oscillation: ArrayLike, horizon: ArrayLike) -> Array:
    return _scaled(np.sqrt(checked(horizon, "horizon")), checked(oscillation, "oscillation"))
