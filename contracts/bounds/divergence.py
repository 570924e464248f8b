"""One token: from the oscillation of the logit drift to divergences (docs/mathematics.md A1 to A10).

q is the inference kernel (tokens are drawn from it), p the training kernel, w = p/q, and D
the oscillation (`oscillation`).
"""

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.numerics import (
    SMALLEST,
    Array,
    Interval,
    checked,
    log_cosh,
    log_expm1,
    logit,
    sigmoid,
)

__all__ = [
    "bhattacharyya_from_oscillation",
    "chi2_from_oscillation",
    "ess_share_from_oscillation",
    "event_interval",
    "hellinger2_from_oscillation",
    "jeffreys_from_oscillation",
    "kl_from_oscillation",
    "kl_from_variance",
    "l2_distance_from_l2_drift",
    "ratio_interval",
    "tv_from_kl",
    "tv_from_oscillation",
    "tv_from_oscillation_and_rest",
]

SERIES_BELOW = 0.05  # below it K*(D) cancels, and three terms are exact to 1e-12
BENNETT_SERIES_BELOW = 1e-2


def l2_distance_from_l2_drift(l2_drift: ArrayLike, *, temperature: ArrayLike = 1.0) -> Array:
    """Bound the L2 distance of p and q by the L2 drift of their logits: |delta|/(2 tau) (A8).

    Sharp for two tokens at small drift.  Units as in `oscillation_from_l2_drift`; the
    result is a distance of probability vectors, at most sqrt(2).
    """
    tau = checked(temperature, "temperature", low=SMALLEST)
    drift = checked(l2_drift, "l2_drift")
    with np.errstate(over="ignore"):
        return np.minimum(drift / (2.0 * tau), np.sqrt(2.0))


def ratio_interval(oscillation: ArrayLike) -> Interval:
    """Enclose the importance ratio of every token: exp(-D) <= w <= exp(D) (A1).

    Sharp as a supremum: two tokens, drift on one of probability near 0.

    Examples
    --------
    >>> [round(float(x), 4) for x in ratio_interval(0.1)]
    [0.9048, 1.1052]
    """
    d = checked(oscillation, "oscillation")
    with np.errstate(over="ignore"):
        return Interval(np.exp(-d), np.exp(d))


def event_interval(probability: ArrayLike, oscillation: ArrayLike) -> Interval:
    """Enclose the probability of an event under the other kernel: logit moves by <= D (A1').

    Sharp: raise exactly the tokens of the event.

    Parameters
    ----------
    probability : probability, any shape
        Of the event (a set of tokens) under either kernel.
    oscillation : dimensionless, broadcast against it

    Examples
    --------
    >>> [round(float(x), 4) for x in event_interval(0.9, 0.5)]
    [0.8452, 0.9369]
    """
    p = checked(probability, "probability", high=1.0)
    d = checked(oscillation, "oscillation")
    with np.errstate(invalid="ignore"):
        lower, upper = sigmoid(logit(p) - d), sigmoid(logit(p) + d)
    blind = np.isinf(d)  # supports may differ: nothing is known
    return Interval(np.where(blind, 0.0, lower)[()], np.where(blind, 1.0, upper)[()])


def tv_from_oscillation(oscillation: ArrayLike) -> Array:
    """Bound the total variation of one token: tanh(D/4) <= D/4 (A2).

    Sharp for every D and vocabulary: two blocks with q(A) = sigmoid(-D/2), p(A) = sigmoid(D/2).
    After both kernels keep the same set it holds with D taken on that set (A11).

    Parameters
    ----------
    oscillation : dimensionless, any shape

    Returns
    -------
    probability, same shape

    Examples
    --------
    >>> round(float(tv_from_oscillation(0.1)), 6)
    0.024995
    """
    return np.tanh(checked(oscillation, "oscillation") / 4.0)


def tv_from_oscillation_and_rest(oscillation: ArrayLike, rest: ArrayLike) -> Array:
    """Bound the total variation when one kernel's top-1 probability is known (A3).

    ``sigmoid(D-L) - sigmoid(-L)`` with L = logit(1-rest) while D < 2L, else A2.  Sharp in
    the first case: raise everything but the top token.  Orders of magnitude below A2 on
    confident tokens.

    Parameters
    ----------
    oscillation : dimensionless, any shape
    rest : probability, broadcast against it
        One minus the top-1 probability of either kernel; pass ``-expm1(top-1 log-prob)``.

    Examples
    --------
    >>> round(float(tv_from_oscillation_and_rest(0.1, 0.01)), 5)
    0.00104
    """
    d, r = np.broadcast_arrays(checked(oscillation, "oscillation"), checked(rest, "rest", high=1.0))
    return np.where(d < -2.0 * logit(r), gain_of_event(r, d), np.tanh(d / 4.0))[()]


def gain_of_event(probability: Array, oscillation: Array) -> Array:
    """Return the most that an event can gain, r (1-r)(e^D-1) / (1 + r (e^D-1)), without cancellation (A1').

    The most it can lose is the gain of its complement.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = (1.0 - probability) * sigmoid(np.log(probability) + log_expm1(oscillation))
    return np.where(np.isinf(oscillation), 1.0 - probability, gain)[()]


def kl_from_oscillation(oscillation: ArrayLike) -> Array:
    """Bound either KL divergence of one token: K*(D) <= min(D^2/8, D) (A4).

    K*(D) = log((e^D-1)/D) - 1 + D/(e^D-1).  Sharp for every D: raise a block of mass
    1/D - 1/(e^D-1).

    Parameters
    ----------
    oscillation : dimensionless, any shape

    Returns
    -------
    nats, same shape

    Examples
    --------
    >>> round(float(kl_from_oscillation(1.0)), 6)
    0.123302
    """
    d = checked(oscillation, "oscillation")
    series = np.square(np.minimum(d, 1.0))
    series = series / 8.0 - series**2 / 576.0 + series**3 / 25920.0
    return np.where(d < SERIES_BELOW, series, _kl_closed_form(np.maximum(d, SERIES_BELOW)))[()]


def _kl_closed_form(d: Array) -> Array:
    finite = np.minimum(d, 1e300)
    tail = finite * np.exp(-finite) / -np.expm1(-finite)
    value = finite - np.log(finite) + np.log(-np.expm1(-finite)) - 1.0 + tail
    return np.where(np.isinf(d), np.inf, value)[()]


def jeffreys_from_oscillation(oscillation: ArrayLike) -> Array:
    """Bound KL(p,q) + KL(q,p) of one token: D tanh(D/4) (A5).

    Sharp for every D, at the pair of A2.  Dimensionless in, nats out, any shape.

    Examples
    --------
    >>> round(float(jeffreys_from_oscillation(1.0)), 6)
    0.244919
    """
    d = checked(oscillation, "oscillation")
    return d * np.tanh(d / 4.0)


def chi2_from_oscillation(oscillation: ArrayLike) -> Array:
    """Bound chi-square(p,q), the variance of w under q: sinh(D/2)^2 (A6).

    Sharp for every D: q(A) = sigmoid(-D), p(A) = 1/2.  Dimensionless, any shape.

    Examples
    --------
    >>> round(float(chi2_from_oscillation(1.0)), 6)
    0.27154
    """
    with np.errstate(over="ignore"):
        return np.square(np.sinh(checked(oscillation, "oscillation") / 2.0))


def ess_share_from_oscillation(oscillation: ArrayLike) -> Array:
    """Bound the effective sample size from below, as a share of N: sech(D/2)^2 (A6).

    Sharp where A6 is.  Any shape; a share in [0, 1].

    Examples
    --------
    >>> round(float(ess_share_from_oscillation(1.0)), 6)
    0.786448
    """
    return np.exp(-2.0 * log_cosh(checked(oscillation, "oscillation") / 2.0))


def bhattacharyya_from_oscillation(oscillation: ArrayLike) -> Array:
    """Bound the Bhattacharyya coefficient of one token from below: sech(D/4) (A7).

    Sharp for every D, at the pair of A2.  Any shape; in [0, 1].
    """
    return np.exp(-log_cosh(checked(oscillation, "oscillation") / 4.0))


def hellinger2_from_oscillation(oscillation: ArrayLike) -> Array:
    """Bound the squared Hellinger distance 1 - BC of one token: 1 - sech(D/4) <= D^2/32 (A7).

    Sharp for every D, at the pair of A2.  Any shape; in [0, 1].

    Examples
    --------
    >>> round(float(hellinger2_from_oscillation(1e-6)) * 32e12, 6)
    1.0
    """
    return -np.expm1(-log_cosh(checked(oscillation, "oscillation") / 4.0)) + 0.0


def kl_from_variance(variance: ArrayLike, largest: ArrayLike) -> Array:
    """Bound KL(q,p) by the weighted L2 drift: log(1 + Var_q(delta/tau) h(b)) (A9).

    h(b) = (e^b - 1 - b)/b^2.  Sharp at small drift, where it is half the variance.

    Parameters
    ----------
    variance : dimensionless, any shape
        Variance under q of delta / tau.
    largest : dimensionless, broadcast against it
        b, the largest deviation of delta / tau above its mean under q; at most D.

    Returns
    -------
    nats

    Examples
    --------
    >>> round(float(kl_from_variance(1e-4, 1e-2)) * 1e5, 3)
    5.017
    """
    v, b = np.broadcast_arrays(checked(variance, "variance"), checked(largest, "largest"))
    with np.errstate(divide="ignore"):
        log_v = np.log(v)
    bound = np.logaddexp(0.0, log_v + _log_bennett(np.minimum(b, 1e300)))
    return np.where(v == 0.0, 0.0, np.where(np.isinf(b), np.inf, bound))[()]


def _log_bennett(b: Array) -> Array:
    near = np.minimum(b, BENNETT_SERIES_BELOW)
    series = np.log(0.5 + near / 6.0 + near**2 / 24.0 + near**3 / 120.0)
    far = np.maximum(b, BENNETT_SERIES_BELOW)
    exact = far + np.log(-np.expm1(-far) - far * np.exp(-far)) - 2.0 * np.log(far)
    return np.where(b < BENNETT_SERIES_BELOW, series, exact)[()]


def tv_from_kl(kl: ArrayLike) -> Array:
    """Bound total variation by the smaller KL: min(sqrt(KL/2), sqrt(1-exp(-KL))) (A10, B4).

    Pinsker below about 1.594 nats, Bretagnolle-Huber above.  Pinsker is sharp as KL goes to
    0.  Concave, so it also holds between means over tokens; and it holds for sequences with
    KL = E_Q of the sum of token KLs (B4).

    Parameters
    ----------
    kl : nats, any shape

    Returns
    -------
    probability

    Examples
    --------
    >>> round(float(tv_from_kl(0.02)), 6)
    0.1
    """
    value = checked(kl, "kl")
    return np.minimum(np.sqrt(value / 2.0), np.sqrt(-np.expm1(-value)))
